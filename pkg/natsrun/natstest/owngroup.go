package natstest

import (
	"os/exec"

	"github.com/expediter-io/expediter/pkg/natsrun/internal/process"
)

// OwnGroup makes cmd begin in a process group of its own, as the processes of natstest/child and of Cluster do. A
// process that a test pauses by itself needs that: otherwise the end of the shell that started the test could continue
// it.
func OwnGroup(cmd *exec.Cmd) { process.OwnGroup(cmd) }
