package terminal

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poll is the interval at which endRest looks for processes of the group.
const poll = 20 * time.Millisecond

// process is the program, and its process group if it leads one.
type process struct {
	cmd *exec.Cmd
	own bool
}

// newProcess sets the attributes of a program that is about to be started.
func newProcess(cmd *exec.Cmd) process {
	p := process{cmd: cmd, own: !foreground()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: p.own}
	return p
}

// foreground reports whether this process is in the foreground of a terminal: a program in another group could not read from it.
func foreground() bool {
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer terminal.Close()
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// pass passes on a signal, unless the terminal has also sent it to the program.
func (p process) pass(s os.Signal) {
	number, ok := s.(syscall.Signal)
	if ok && (p.own || number != syscall.SIGINT && number != syscall.SIGQUIT) {
		p.signal(number)
	}
}

// signal sends a signal to all processes of the program, unless the program has ended.
func (p process) signal(s syscall.Signal) {
	if p.own {
		_ = syscall.Kill(-p.cmd.Process.Pid, s) // the group has ended
		return
	}
	_ = p.cmd.Process.Signal(s) // it has ended
}

// endRest waits until the other processes of the group have ended, and kills those that run after the deadline.
func (p process) endRest(deadline time.Time) {
	if !p.own {
		return
	}
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for syscall.Kill(-p.cmd.Process.Pid, 0) == nil {
		if !time.Now().Before(deadline) {
			p.signal(syscall.SIGKILL)
			return
		}
		<-ticker.C
	}
}
