//go:build !linux

package program

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// On other systems only the program itself is killed: processes that it started continue, and its files have no
// bound.

func command(c Command) *exec.Cmd { return exec.Command(c.Path, c.Args...) } //nolint:noctx // callers build the arguments; ctx kills it

func limit(*exec.Cmd, Command) {}

// waitForExit polls, because here it cannot wait without reaping the process.
func waitForExit(pid int) {
	for {
		process, err := os.FindProcess(pid)
		if err != nil || process.Signal(syscall.Signal(0)) != nil {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}

func kill(pid int) {
	if process, err := os.FindProcess(pid); err == nil {
		_ = process.Kill() // it has ended
	}
}
