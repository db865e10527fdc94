//go:build !linux

package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// attributes returns nil: a child notices the end of its parent by the end of its stdin.
func attributes() *syscall.SysProcAttr { return nil }

// killed says of what Wait returned that the process failed: only that is the same everywhere.
func killed(err error) bool {
	_, ok := errors.AsType[*exec.ExitError](err)

	return ok
}

func pause(*os.Process, bool) error {
	return fmt.Errorf("pause a process: %w", errors.ErrUnsupported)
}
