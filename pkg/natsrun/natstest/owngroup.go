package natstest

import (
	"os/exec"

	"github.com/expediter-io/expediter/pkg/natsrun/internal/process"
)

// OwnGroup makes cmd begin in a process group of its own, as the processes of
// natstest/child and of Cluster do. One that a test freezes by itself has to: the
// end of the shell that started the test could thaw it.
func OwnGroup(cmd *exec.Cmd) { process.OwnGroup(cmd) }
