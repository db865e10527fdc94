package quiet

import (
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Until returns the end of the quiet hours that now is in, or the zero time when it is in none.
//
// Hours that end before they begin, by the clock, go on to the next day. Where the clocks change, an end that the clock
// jumps over is as much later as it jumps, and one that it shows twice is the second: quiet is never cut short.
func Until(now time.Time, hours *contracts.QuietHours, zone string) (time.Time, error) {
	if hours == nil || hours.From == hours.To {
		return time.Time{}, nil
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return time.Time{}, fmt.Errorf("quiet hours: %w", err)
	}
	from, err := time.Parse("15:04", hours.From)
	if err != nil {
		return time.Time{}, fmt.Errorf("quiet hours: from: %w", err)
	}
	to, err := time.Parse("15:04", hours.To)
	if err != nil {
		return time.Time{}, fmt.Errorf("quiet hours: to: %w", err)
	}
	now = now.In(location)
	for _, days := range []int{-1, 0} { // those that began yesterday may go on today
		begin := moment(now, days, from, false)
		if to.Before(from) {
			days++
		}
		if end := moment(now, days, to, true); !now.Before(begin) && now.Before(end) {
			return end, nil
		}
	}
	return time.Time{}, nil
}

// moment is when the clock, some days from now, shows a time: the last such moment when there are two, or the first.
func moment(now time.Time, days int, clock time.Time, last bool) time.Time {
	shown := time.Date(now.Year(), now.Month(), now.Day()+days, clock.Hour(), clock.Minute(), 0, 0, time.UTC)
	at := func(reference time.Time) (t time.Time, right bool) {
		_, offset := reference.In(now.Location()).Zone()
		t = shown.Add(-time.Duration(offset) * time.Second).In(now.Location())
		return t, t.Format(time.DateTime) == shown.Format(time.DateTime)
	}
	before, rightBefore := at(shown.Add(-day)) // by the offset before a change, and by the one after it
	after, rightAfter := at(shown.Add(day))
	if rightAfter && (last || !rightBefore) {
		return after
	}
	return before
}

// day is more than any change of the clocks, and any offset.
const day = 24 * time.Hour
