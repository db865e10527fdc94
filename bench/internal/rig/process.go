package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

// Process is a child of this process, which it does not outlive.
type Process struct{ *child.Process }

// ResidentBytes returns the memory of the process that is in RAM.
func (p *Process) ResidentBytes() int64 { return ResidentBytes(p.PID()) }

// ResetPeak sets the memory peak of the process to its present size.
func (p *Process) ResetPeak() { resetPeak(p.PID()) }

// PeakBytes returns the most memory that the process had in RAM since ResetPeak.
func (p *Process) PeakBytes() int64 { return peakBytes(p.PID()) }

// Kill ends the process like a crash, and waits for its end.
func (p *Process) Kill() {
	_ = p.Process.Kill() //nolint:errcheck // it is gone already
}

// End closes the input of the process, and kills the process if it goes on for long.
func (p *Process) End() {
	_ = p.Stop() //nolint:errcheck // it is killed, mostly
}

// StartTask starts this program in a role, and hands it a task as JSON.
func StartTask(role string, task any) (*Process, error) {
	p, err := child.Start(io.Discard, role, task)
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	return &Process{p}, nil
}

// ChildMain runs do with the task of this process, if it was started in the role. The standard input goes on behind the task.
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
