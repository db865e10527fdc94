package schedule

import (
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// day is as much as any change of the clocks, and more than any offset.
const day = 24 * time.Hour

// In returns a moment by the clock of a zone: an IANA name, "" is UTC.
func In(zone string, t time.Time) (time.Time, error) {
	location, err := time.LoadLocation(zone)
	if err != nil {
		return t, fmt.Errorf("time zone: %w", err)
	}
	return t.In(location), nil
}

// Clock reads a time of day, such as 09:30.
func Clock(text string) (sinceMidnight time.Duration, err error) {
	t, err := time.Parse("15:04", text)
	if err != nil {
		return 0, fmt.Errorf("time of day: %w", err)
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, nil
}

// Moment is when the clock of now's zone, some days from now, shows a time: the last such moment when there are two, or
// the first. skipped says that it never does, and that the moment is as much later as the clock jumps.
func Moment(now time.Time, days int, clock time.Duration, last bool) (t time.Time, skipped bool) {
	shown := time.Date(now.Year(), now.Month(), now.Day()+days, 0, 0, 0, 0, time.UTC).Add(clock)
	at := func(reference time.Time) (t time.Time, right bool) {
		_, offset := reference.In(now.Location()).Zone()
		t = shown.Add(-time.Duration(offset) * time.Second).In(now.Location())
		return t, reading(t).Equal(shown)
	}
	before, rightBefore := at(shown.Add(-day)) // by the offset before a change, and by the one after it
	after, rightAfter := at(shown.Add(day))
	if rightAfter && (last || !rightBefore) {
		return after, false
	}
	return before, !rightBefore
}

// NextOf is the first moment after now at which the clock of now's zone comes to one of some times of day. One that it
// shows twice a day counts once, the first time. clocks must not be empty.
func NextOf(now time.Time, clocks []time.Duration) time.Time {
	var next time.Time
	for days := -1; days <= 2; days++ { // one that is jumped over may be a day late, when a whole day is
		for _, clock := range clocks {
			if t, _ := Moment(now, days, clock, false); t.After(now) && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
	}
	return next
}

// NextEvery is the first moment after now at which the clock of now's zone comes to a whole multiple of every since its
// midnight, each time that it does, or jumps over one. every must divide a day.
func NextEvery(now time.Time, every time.Duration) time.Time {
	next := following(now, every)
	for from := now; ; {
		_, change := from.ZoneBounds()
		if change.IsZero() || next.Before(change) {
			return next
		}
		change = change.In(now.Location())
		jump := offset(change) - offset(from)
		shown := reading(change)
		if next.Sub(change) < jump || shown.Truncate(every).Equal(shown) { // over next, or onto a multiple
			return change
		}
		from, next = change, following(change, every)
	}
}

// following is the first multiple after t, if no clock changes until then.
func following(t time.Time, every time.Duration) time.Time {
	shown := reading(t)
	return t.Add(shown.Truncate(every).Add(every).Sub(shown))
}

// reading returns the time that the clock shows, as if it were UTC.
func reading(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

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
