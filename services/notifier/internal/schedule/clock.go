package schedule

import (
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// day is at least any change of the clocks, and more than any offset.
const day = 24 * time.Hour

// In returns a time in a zone, which has an IANA name; "" is UTC.
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

// Moment returns the time at which the clock of now's zone, some days from now, shows a time of day: of two such times
// the last or the first. skipped reports whether the clock jumps over the time of day. Then the result is later by the
// length of the jump.
func Moment(now time.Time, days int, clock time.Duration, last bool) (t time.Time, skipped bool) {
	shown := time.Date(now.Year(), now.Month(), now.Day()+days, 0, 0, 0, 0, time.UTC).Add(clock)
	at := func(reference time.Time) (t time.Time, right bool) {
		_, offset := reference.In(now.Location()).Zone()
		t = shown.Add(-time.Duration(offset) * time.Second).In(now.Location())
		return t, reading(t).Equal(shown)
	}
	before, rightBefore := at(shown.Add(-day)) // by the offset before a change of the clock, and by the offset after it
	after, rightAfter := at(shown.Add(day))
	if rightAfter && (last || !rightBefore) {
		return after, false
	}
	return before, !rightBefore
}

// NextOf returns the first time after now at which the clock of now's zone reaches one of some times of day. A time of
// day that the clock shows twice counts once, the first time. clocks must not be empty.
func NextOf(now time.Time, clocks []time.Duration) time.Time {
	var next time.Time
	for days := -1; days <= 2; days++ { // when the clock jumps over a whole day, the result may be a day late
		for _, clock := range clocks {
			if t, _ := Moment(now, days, clock, false); t.After(now) && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
	}
	return next
}

// NextEvery returns the first time after now at which the clock of now's zone reaches, or jumps over, a multiple of
// every since midnight. A multiple that the clock shows twice counts twice. every must divide a day.
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
		if next.Sub(change) < jump || shown.Truncate(every).Equal(shown) { // a jump over next, or onto a multiple
			return change
		}
		from, next = change, following(change, every)
	}
}

// following returns the first multiple after t, if the clock does not change until then.
func following(t time.Time, every time.Duration) time.Time {
	shown := reading(t)
	return t.Add(shown.Truncate(every).Add(every).Sub(shown))
}

// reading returns the time that the clock shows, as a time in UTC.
func reading(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// QuietUntil returns the end of the quiet hours that contain now, or the zero time outside quiet hours.
//
// Hours whose end is before their beginning, by the clock, end on the next day. When the clock changes, quiet hours are
// never cut short. An end that the clock jumps over is later by the length of the jump, and of an end that the clock shows
// twice the second counts. A beginning that the clock jumps over is the time of the jump, and of a beginning that the clock
// shows twice the first counts. Hours that the clock jumps over as a whole are later by the length of the jump.
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
	for _, days := range []int{-1, 0} { // hours that began yesterday may continue today
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
