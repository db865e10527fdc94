package natsrun

import (
	"fmt"
	"os"
	"syscall"
)

// childAttributes makes the kernel kill a node whose parent died, also one that
// is frozen and would not notice the end of its stdin.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func pauseProcess(p *os.Process, on bool) error {
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}

	if err := p.Signal(sig); err != nil {
		return fmt.Errorf("send %s: %w", sig, err)
	}

	return nil
}
