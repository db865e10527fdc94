package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// attributes makes the kernel kill a child whose parent died.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// killed says of what Wait returned that the process was killed.
func killed(err error) bool {
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}

	status, ok := ended.Sys().(syscall.WaitStatus)

	return ok && status.Signal() == syscall.SIGKILL
}

func pause(p *os.Process, on bool) error {
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}

	if err := p.Signal(sig); err != nil {
		return fmt.Errorf("send %s: %w", sig, err)
	}

	return nil
}
