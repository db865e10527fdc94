package testbed

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Mount mounts a disk of 64 MiB in memory on a folder, until the test ends. It needs root.
func Mount(t testing.TB, dir string) error {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		return err
	}
	t.Cleanup(func() { check.ErrorIs(t, syscall.Unmount(dir, syscall.MNT_DETACH), nil) })
	return nil
}

// Fill writes a file that takes all room of a disk, and returns its path.
func Fill(t testing.TB, disk string) (path string) {
	t.Helper()
	f, err := os.Create(filepath.Join(disk, "filler"))
	check.OK(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	check.Require(t, errors.Is(err, syscall.ENOSPC), "%v", err)
	return f.Name()
}
