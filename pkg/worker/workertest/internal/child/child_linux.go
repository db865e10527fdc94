package child

import (
	"fmt"
	"os"
	"syscall"
)

// attributes makes the kernel kill a child whose parent died.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
