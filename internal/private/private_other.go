//go:build !unix

package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// isOurs has no folder swept: hold takes no lock on this system.
func isOurs(fs.FileInfo) bool { return false }

// isSystems trusts all folders: the one for temporary files is each user's own on this system.
func isSystems(fs.FileInfo) bool { return true }

var errHeld = errors.New("the folder is held by another process")

// hold opens a folder.
func hold(dir string) (*os.File, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open a temporary folder: %w", err)
	}
	return file, nil
}
