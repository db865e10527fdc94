package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of processor times in /proc: the same on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// processorTime is what a process and all below it have spent, in user and in system mode, in steps of ten milliseconds.
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

// ownTime is what a process has spent, and those of its children that have ended.
func ownTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // the name may have spaces
	if len(fields) < 15 {
		return 0
	}
	var ticks int64
	for _, field := range fields[11:15] { // utime, stime, cutime and cstime, counted from the state
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

// resetPeak makes the peak of a process what it has now.
func resetPeak(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) //nolint:errcheck // the peak is then a greater one
}

// peakBytes is the most memory that a process had in RAM.
func peakBytes(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); n == 1 { //nolint:errcheck // it is another line
			return kilobytes << 10
		}
	}
	return 0
}

// ResidentBytes is the memory of a process that is in RAM.
func ResidentBytes(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
