//go:build unix

package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// overflow is the owner of files whose owner has no number in the user namespace of this process, such as the system's in a container of
// a user.
const overflow = 65534

func owner(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// isOurs reports whether a file is this user's.
func isOurs(info fs.FileInfo) bool { return owner(info) == os.Geteuid() }

// isSystems reports whether a file is the system's, which everybody has to trust.
func isSystems(info fs.FileInfo) bool {
	if owner(info) != overflow {
		return owner(info) == 0
	}
	numbers, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && !strings.Contains(string(numbers), " 4294967295") // as where all have numbers
}

var errHeld = errors.New("the folder is held by another process")

// hold takes the lock of a folder. The kernel gives it back when the process ends, however it does.
func hold(dir string) (*os.File, error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open a temporary folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(errHeld, err, file.Close())
	}
	// Between the two calls the folder may have been removed.
	now, err := os.Stat(dir)
	if err == nil {
		var then fs.FileInfo
		if then, err = file.Stat(); err == nil && !os.SameFile(now, then) {
			err = errHeld
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
