package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

// Process is a child of this one. It does not outlive it.
type Process struct{ *child.Process }

// ResidentBytes is its memory that is in RAM.
func (p *Process) ResidentBytes() int64 { return ResidentBytes(p.PID()) }

// ResetPeak makes its peak what it has now.
func (p *Process) ResetPeak() { resetPeak(p.PID()) }

// PeakBytes is the most memory that it had in RAM since ResetPeak.
func (p *Process) PeakBytes() int64 { return peakBytes(p.PID()) }

// Kill ends it as a crash does, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.Process.Kill() //nolint:errcheck // it is gone already
}

// End closes its input, and kills it if it goes on for long.
func (p *Process) End() {
	_ = p.Stop() //nolint:errcheck // it is killed, mostly
}

// StartTask starts this program in a role, and hands it what to do as JSON.
func StartTask(role string, task any) (*Process, error) {
	p, err := child.Start(io.Discard, role, task)
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	return &Process{p}, nil
}

// ChildMain is the life of a process that was started for a task, if this one was started in the role. Its standard input goes on behind the task.
func ChildMain[T any](role string, do func(ctx context.Context, task T) error) {
	if child.Role() != role {
		return
	}
	var task T
	err := json.NewDecoder(os.Stdin).Decode(&task)
	if err == nil {
		err = do(context.Background(), task)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// ErrMissing says that a program is not installed.
var ErrMissing = errors.New("not installed")

// find returns the path of a program that may not be installed, in one of the folders if it is not in the PATH.
func find(program string, folders ...string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, pattern := range folders {
		found, _ := filepath.Glob(filepath.Join(pattern, program)) //nolint:errcheck // the patterns are ours
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%w: %s", ErrMissing, program)
}
