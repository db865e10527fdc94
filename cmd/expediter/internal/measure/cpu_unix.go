//go:build unix

package measure

import (
	"syscall"
	"time"
)

// processorTime returns the CPU time of this process, in user and in system mode.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
