//go:build !linux

package rig

import "time"

// processor is unknown here.
func processor() string { return "processors" }

// processorTime is unknown here: servers count as nothing.
func processorTime(int) time.Duration { return 0 }

// ResidentBytes is unknown here.
func ResidentBytes(int) int64 { return 0 }

func resetPeak(int) {}

// peakBytes is unknown here.
func peakBytes(int) int64 { return 0 }
