package notifier

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// oracle reads the clock on a wall each minute for some days. It knows of a zone only the times that its clock shows,
// and nothing of the code under test.
type oracle struct {
	begin time.Time
	shows []time.Time // minute by minute since begin: what the clock shows, as if it were UTC

	// first and last are when it shows a minute of a day, for the first and the last time. One that it jumps over counts as
	// shown as much later as it jumps, and jumped is when it jumps over it.
	first, last, jumped map[time.Time]time.Time
}

// watch looks at the clock of a zone.
func watch(t *testing.T, zone string, begin time.Time, days int) *oracle {
	t.Helper()
	location := check.Must(time.LoadLocation(zone))(t)
	o := &oracle{begin: begin, first: map[time.Time]time.Time{}, last: map[time.Time]time.Time{}, jumped: map[time.Time]time.Time{}}
	for i := range days * 24 * 60 {
		now := begin.Add(time.Duration(i) * time.Minute)
		clock := now.In(location)
		shown := time.Date(clock.Year(), clock.Month(), clock.Day(), clock.Hour(), clock.Minute(), 0, 0, time.UTC)
		if i > 0 {
			next := o.shows[i-1].Add(time.Minute)
			for over := next; over.Before(shown); over = over.Add(time.Minute) {
				o.jumped[over] = now
				o.first[over] = now.Add(over.Sub(next))
				o.last[over] = o.first[over]
			}
		}
		if _, ok := o.first[shown]; !ok {
			o.first[shown] = now
		}
		o.last[shown] = now
		o.shows = append(o.shows, shown)
	}
	return o
}

// quiet returns, minute by minute, whether a user is not to be disturbed: each day from the first time that the clock shows the
// beginning, or jumps over it, to the last time that it shows the end. When it jumps over both, both are later.
func (o *oracle) quiet(t *testing.T, hours *contracts.QuietHours) []bool {
	t.Helper()
	quiet := make([]bool, len(o.shows))
	if hours == nil || hours.From == hours.To {
		return quiet
	}
	from, to := minuteOfDay(t, hours.From), minuteOfDay(t, hours.To)
	if to < from {
		to += day
	}
	for date := o.shows[0].Truncate(day); date.Before(o.shows[len(o.shows)-1]); date = date.Add(day) {
		begin, ok := o.first[date.Add(from)]
		end, still := o.last[date.Add(to)]
		if !ok || !still {
			continue // it is none of the days that were watched
		}
		if at, ok := o.jumped[date.Add(from)]; ok {
			if _, both := o.jumped[date.Add(to)]; !both {
				begin = at
			}
		}
		for ; begin.Before(end); begin = begin.Add(time.Minute) {
			quiet[o.minute(begin)] = true
		}
	}
	return quiet
}

// windowEnd is when the window of a digest ends that a moment is in. Of one that ends every so often it is each time that the clock
// comes to a multiple, or jumps over one; of one that ends at times of day it is when the clock shows one of them for the first
// time that day.
func (o *oracle) windowEnd(t *testing.T, k clockKind, after time.Time) time.Time {
	t.Helper()
	for i := o.minute(after) + 1; k.every > 0; i++ {
		shown := o.shows[i]
		for over := o.shows[i-1].Add(time.Minute); over.Before(shown); over = over.Add(time.Minute) {
			if multiple(over, k.every) {
				return o.begin.Add(time.Duration(i) * time.Minute)
			}
		}
		if multiple(shown, k.every) {
			return o.begin.Add(time.Duration(i) * time.Minute)
		}
	}
	end := after.Add(2 * day)
	for date := o.shows[o.minute(after)].Truncate(day).Add(-day); date.Before(end.Add(day)); date = date.Add(day) {
		for _, text := range k.at {
			if at := o.first[date.Add(minuteOfDay(t, text))]; at.After(after) && at.Before(end) {
				end = at
			}
		}
	}
	return end
}

func multiple(shown time.Time, every time.Duration) bool {
	return shown.Sub(shown.Truncate(day))%every == 0
}

// minute is how many minutes have been watched before a moment.
func (o *oracle) minute(at time.Time) int { return int(at.Sub(o.begin) / time.Minute) }

const day = 24 * time.Hour

// minuteOfDay reads a time of day.
func minuteOfDay(t *testing.T, text string) time.Duration {
	t.Helper()
	clock := check.Must(time.Parse("15:04", text))(t)
	return clock.Sub(clock.Truncate(day))
}
