//go:build !unix

package outboxtest

import (
	"errors"
	"os/exec"
)

var errNotUnix = errors.New("Postgres for tests needs a Unix system")

func makeServant(string) error { return errNotUnix }

func asServant(*exec.Cmd) error { return errNotUnix }
