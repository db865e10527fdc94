package natsrun

import "syscall"

const (
	ramPath = "/dev/shm"

	// minRAM is the room below which /dev/shm is left alone: containers get
	// 64 MB by default, and a full store is a confusing way to fail.
	minRAM = 512 << 20
)

// ramDir returns a directory on a RAM file system, or "" when there is none
// with enough room.
func ramDir() string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(ramPath, &st); err != nil {
		return ""
	}

	//nolint:gosec // a block size is never negative
	if st.Bavail*uint64(st.Bsize) < minRAM {
		return ""
	}

	if syscall.Access(ramPath, 2 /* W_OK */) != nil {
		return ""
	}
	return ramPath
}
