package process

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// OwnGroup makes cmd begin in a process group of its own.
func OwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Bind makes cmd begin in a process group of its own, and the kernel kill it when its parent dies, also when it is frozen and
// would not notice the end of its standard input. The kernel takes the thread for the parent that starts it: lock the goroutine
// to its thread until the process has ended.
func Bind(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// Pause stops the clock of a process (SIGSTOP), or lets it go on (SIGCONT).
func Pause(p *os.Process, on bool) error {
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}

	if err := p.Signal(sig); err != nil {
		return fmt.Errorf("send %s: %w", sig, err)
	}

	return nil
}
