package chaos_test

import (
	"time"

	"golang.org/x/sys/unix"
)

// now is the machine's monotonic clock in nanoseconds: the same in every process.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

func sinceStart(at, start int64) time.Duration {
	return time.Duration(at - start).Round(time.Microsecond)
}
