//go:build !linux

package terminal

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is the program.
type process struct{ cmd *exec.Cmd }

func newProcess(cmd *exec.Cmd) process { return process{cmd} }

// pass passes on a signal.
func (p process) pass(s os.Signal) {
	_ = p.cmd.Process.Signal(s) // it has ended
}

// signal sends a signal to the program.
func (p process) signal(s syscall.Signal) { p.pass(s) }

// endRest does nothing, because there is no group.
func (process) endRest(time.Time) {}
