//go:build unix

package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// isOurs reports whether a folder is this user's. Another's of the same name would be removed otherwise by root.
func isOurs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

var errHeld = errors.New("program: the folder is held by another")

// hold takes the lock of a folder. The kernel gives it back when the process ends, however it does.
func hold(dir string) (*os.File, error) {
	file, err := os.Open(dir) //nolint:gosec // one of our own
	if err != nil {
		return nil, fmt.Errorf("program: open a temporary folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(errHeld, err, file.Close())
	}
	return file, nil
}
