package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/expediter-io/expediter/internal/testbed"
)

// Process is a child of this process, which it does not outlive.
type Process struct{ *testbed.Process }

// ResidentBytes returns the memory of the process that is in RAM.
func (p *Process) ResidentBytes() int64 { return ResidentBytes(p.PID()) }

// ResetPeak sets the memory peak of the process to its present size.
func (p *Process) ResetPeak() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0) // after an error the peak is a greater one
}

// PeakBytes returns the most memory that the process had in RAM since ResetPeak.
func (p *Process) PeakBytes() int64 {
	process, err := procfs.NewProc(p.PID())
	if err != nil {
		return 0
	}
	s, _ := process.NewStatus() // it is gone
	return int64(s.VmHWM)
}

// Kill ends the process like a crash, and waits for its end.
func (p *Process) Kill() {
	_ = p.Process.Kill() // it is gone already
}

// End closes the input of the process, and kills the process if it goes on for long.
func (p *Process) End() {
	_ = p.Stop() // it is killed, mostly
}

// StartTask starts this program in a role, and hands it a task as JSON.
func StartTask(role string, task any) (*Process, error) {
	p, err := testbed.Start(io.Discard, role, task)
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	return &Process{p}, nil
}

// ChildMain runs do with the task of this process, if it was started in the role. The standard input goes on behind the task.
func ChildMain[T any](role string, do func(ctx context.Context, task T) error) {
	if testbed.Role() != role {
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

// clockTick is the unit of processor times in /proc: the same on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// processorTime returns the processor time of a process and all below it, in user and in system mode, in steps of ten milliseconds. Like
// all that is read from /proc it is 0 on other systems than Linux, and for a process that has ended.
func processorTime(pid int) time.Duration {
	s := statOf(pid)
	ticks := int(s.UTime+s.STime) + s.CUTime + s.CSTime
	sum := time.Duration(ticks) * clockTick
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is ours
	for _, file := range tasks {
		data, _ := os.ReadFile(file) // it is gone
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				sum += processorTime(child)
			}
		}
	}
	return sum
}

func statOf(pid int) procfs.ProcStat {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}
	}
	s, _ := p.Stat() // it is gone
	return s
}

// ResidentBytes returns the memory of a process that is in RAM.
func ResidentBytes(pid int) int64 { return int64(statOf(pid).ResidentMemory()) }

// SelfTime returns the processor time of this process, in user and in system mode.
func SelfTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Work is processor time: of the clients, which are this process, and of the servers.
type Work struct{ clients, servers time.Duration }

// WorkOf returns the work of this process and of s so far.
func WorkOf(s *Service) Work { return Work{SelfTime(), s.ProcessorTime()} }
