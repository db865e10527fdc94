package process

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// bind makes cmd begin in its own process group, and makes the kernel kill it when its parent dies, even if it is paused and would
// not notice the end of its standard input.
func bind(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
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

// Killed reports whether SIGKILL ended the process. The process must have ended.
func (p *Process) Killed() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
