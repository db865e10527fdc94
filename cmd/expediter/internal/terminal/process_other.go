//go:build !linux

package terminal

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

type process struct{ cmd *exec.Cmd }

func newProcess(cmd *exec.Cmd) process { return process{cmd} }

func (p process) pass(s os.Signal) {
	_ = p.cmd.Process.Signal(s) // it has ended
}

func (p process) signal(s syscall.Signal) { p.pass(s) }

// endRest does nothing, because there is no group.
func (process) endRest(time.Time) {}
