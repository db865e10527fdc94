package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// diskRoom returns the free space in a folder of this machine, in bytes.
func diskRoom(path string) (uint64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, fmt.Errorf("room of %s: %w", path, err)
	}
	return stat.Bavail * uint64(stat.Bsize), nil //nolint:gosec // positive
}
