//go:build !linux

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

func bind(*exec.Cmd) {}

func pause(*os.Process, bool) error {
	return fmt.Errorf("pause a process: %w", errors.ErrUnsupported)
}

// Killed reports whether the process failed: not every system reports more. The process must have ended.
func (p *Process) Killed() bool { return p.Err != nil }
