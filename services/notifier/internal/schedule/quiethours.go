package schedule

import (
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// QuietUntil returns the end of the quiet hours that now is in, or the zero time when it is in none.
//
// Hours that end before they begin, by the clock, go on to the next day. Where the clocks change, an end that the clock
// jumps over is as much later as it jumps, and one that it shows twice is the second; a beginning that the clock jumps over
// is when it jumps, and one that it shows twice is the first: quiet is never cut short. Hours that the clock jumps over as a
// whole are as much later as it jumps.
func QuietUntil(now time.Time, hours *contracts.QuietHours, zone string) (time.Time, error) {
	if hours == nil || hours.From == hours.To {
		return time.Time{}, nil
	}
	now, err := In(zone, now)
	if err != nil {
		return time.Time{}, fmt.Errorf("quiet hours: %w", err)
	}
	from, err := Clock(hours.From)
	if err != nil {
		return time.Time{}, fmt.Errorf("quiet hours: from: %w", err)
	}
	to, err := Clock(hours.To)
	if err != nil {
		return time.Time{}, fmt.Errorf("quiet hours: to: %w", err)
	}
	for _, days := range []int{-1, 0} { // those that began yesterday may go on today
		begin, jumpedIn := Moment(now, days, from, false)
		if to < from {
			days++
		}
		end, jumpedOut := Moment(now, days, to, true)
		if jumpedIn && !jumpedOut {
			begin, _ = begin.ZoneBounds()
		}
		if !now.Before(begin) && now.Before(end) {
			return end, nil
		}
	}
	return time.Time{}, nil
}
