//go:build !unix

package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// isOurs reports whether a folder is this user's: each user has a folder for temporary files on this system.
func isOurs(fs.FileInfo) bool { return true }

var errHeld = errors.New("program: the folder is held by another")

// hold opens a folder. On this system it takes no lock.
func hold(dir string) (*os.File, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("program: open a temporary folder: %w", err)
	}
	return file, nil
}
