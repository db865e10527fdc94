//go:build unix

package rig

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// actAs returns the attributes of a process of another user than root, and makes that user the owner of the folders.
func actAs(name string, folders ...string) (*syscall.SysProcAttr, error) {
	attributes := &syscall.SysProcAttr{}
	if os.Geteuid() != 0 {
		return attributes, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("%w: user %s, and Postgres does not run as root", ErrMissing, name)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	for _, folder := range folders {
		if err := os.Chown(folder, uid, gid); err != nil {
			return nil, fmt.Errorf("hand over a folder: %w", err)
		}
	}
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // they are such
	return attributes, nil
}
