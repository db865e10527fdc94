package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// processor returns the model of the machine's first processor.
func processor() string {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return ""
	}
	all, err := fs.CPUInfo()
	if err != nil || len(all) == 0 {
		return ""
	}
	return all[0].ModelName
}

// clockTick is the unit of processor times in /proc: the same on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// processorTime returns the processor time of a process and all below it, in user and in system mode, in steps of ten
// milliseconds.
func processorTime(pid int) (sum time.Duration) {
	sum = ownTime(pid)
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) //nolint:errcheck // the pattern is ours
	for _, file := range tasks {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				sum += processorTime(child)
			}
		}
	}
	return sum
}

// ownTime returns the processor time of a process and of its children that have ended.
func ownTime(pid int) time.Duration {
	s := statOf(pid)
	ticks := int(s.UTime+s.STime) + s.CUTime + s.CSTime //nolint:gosec // a process does not live long enough for an overflow
	return time.Duration(ticks) * clockTick
}

// statOf returns the stat of a process, empty for a process that has ended.
func statOf(pid int) procfs.ProcStat {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}
	}
	s, _ := p.Stat() //nolint:errcheck // it is gone
	return s
}

// resetPeak sets the peak of a process's memory to its present size.
func resetPeak(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) //nolint:errcheck // after an error the peak is a greater one
}

// peakBytes returns the most memory that a process had in RAM.
func peakBytes(pid int) int64 {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	s, _ := p.NewStatus() //nolint:errcheck // it is gone
	return int64(s.VmHWM) //nolint:gosec // no machine has as much
}

// ResidentBytes returns the memory of a process that is in RAM.
func ResidentBytes(pid int) int64 { return int64(statOf(pid).ResidentMemory()) }
