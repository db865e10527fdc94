//go:build unix

package outboxtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"syscall"
)

// makeServant makes a folder for the servant, the user that runs Postgres: postgres in a test of root, or else the user of the test.
func makeServant(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil || os.Geteuid() != 0 {
		return err
	}
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { //nolint:gosec // the servant gets through it
		return err
	}
	is, err := servant()
	if err != nil {
		return err
	}
	return os.Chown(dir, int(is.Uid), int(is.Gid))
}

func servant() (*syscall.Credential, error) {
	is := &syscall.Credential{}
	u, err := user.Lookup("postgres")
	if err == nil {
		_, err = fmt.Sscan(u.Uid+" "+u.Gid, &is.Uid, &is.Gid)
	}
	return is, err
}

// asServant has the servant run a command, apart from the signals of a terminal.
func asServant(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential, err = servant()
	}
	return err
}
