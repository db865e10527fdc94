//go:build !linux

package child

import (
	"errors"
	"os/exec"
)

// killed says of what Wait returned that the process failed: only that is the same everywhere.
func killed(err error) bool {
	_, ok := errors.AsType[*exec.ExitError](err)

	return ok
}
