package child

import (
	"errors"
	"os/exec"
	"syscall"
)

// killed says of what Wait returned that the process was killed.
func killed(err error) bool {
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}

	status, ok := ended.Sys().(syscall.WaitStatus)

	return ok && status.Signal() == syscall.SIGKILL
}
