package natsrun

import "syscall"

const (
	ramPath = "/dev/shm"

	// minRAM is the least room with which /dev/shm is used: containers get 64 MB by default, and the errors of a full store are confusing.
	minRAM = 512 << 20
)

// ramDir returns a directory on a RAM file system, or "" when there is none
// with enough room.
func ramDir() string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(ramPath, &st); err != nil {
		return ""
	}
	if st.Bavail*uint64(st.Bsize) < minRAM {
		return ""
	}
	if syscall.Access(ramPath, 2 /* W_OK */) != nil {
		return ""
	}
	return ramPath
}
