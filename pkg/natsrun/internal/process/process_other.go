//go:build !linux

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// OwnGroup does nothing: what is said of it holds on Linux.
func OwnGroup(*exec.Cmd) {}

func bind(*exec.Cmd) {}

func pause(*os.Process, bool) error {
	return fmt.Errorf("pause a process: %w", errors.ErrUnsupported)
}

// Killed reports whether the process failed: only that is the same everywhere. It has ended.
func (p *Process) Killed() bool { return p.Err != nil }
