//go:build !linux

package natsrun

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// childAttributes returns nil: a node notices the end of its parent by the end
// of its stdin.
func childAttributes() *syscall.SysProcAttr { return nil }

func pauseProcess(*os.Process, bool) error {
	return fmt.Errorf("pause a process: %w", errors.ErrUnsupported)
}
