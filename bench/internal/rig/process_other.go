//go:build !linux

package rig

import "time"

// processor is not known on this system.
func processor() string { return "processors" }

// processorTime returns 0: the processor time of servers is not known on this system.
func processorTime(int) time.Duration { return 0 }

// ResidentBytes returns 0: the memory is not known on this system.
func ResidentBytes(int) int64 { return 0 }

func resetPeak(int) {}

// peakBytes returns 0: the memory is not known on this system.
func peakBytes(int) int64 { return 0 }
