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

// Bind does nothing: a process notices the end of its parent by the end of its standard input.
func Bind(*exec.Cmd) {}

// Pause returns ErrUnsupported.
func Pause(*os.Process, bool) error {
	return fmt.Errorf("pause a process: %w", errors.ErrUnsupported)
}
