//go:build !linux

package child

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// attributes returns nil: a child notices the end of its parent by the end of its stdin.
func attributes() *syscall.SysProcAttr { return nil }

func pause(*os.Process, bool) error {
	return fmt.Errorf("pause a process: %w", errors.ErrUnsupported)
}
