package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// changes are days around which clocks change: by an hour both ways, by half an hour, at midnight both ways, and by a day.
var changes = map[string][]string{
	"UTC":                 {"2026-03-29"},
	"Europe/Berlin":       {"2026-03-29", "2026-10-25"},
	"America/New_York":    {"2026-03-08", "2026-11-01"},
	"Asia/Jerusalem":      {"2026-03-27", "2026-10-25"},
	"Australia/Lord_Howe": {"2026-04-05", "2026-10-04"},
	"America/Havana":      {"2026-03-08", "2026-11-01"},
	"Asia/Beirut":         {"2026-03-29", "2026-10-25"},
	"Pacific/Apia":        {"2011-12-30"},
	"Asia/Kathmandu":      {"2026-03-29"},
}

// ends are the windows' ends from begin on, minute by minute: whenever the clock comes to a time, or that once a day. One
// that it jumps over is when it jumps, or as much later as it jumps. It knows nothing of zones but what the clock shows.
func ends(begin time.Time, minutes int, is func(minuteOfDay int) bool, daily bool) []time.Time {
	show := func(t time.Time) time.Time {
		return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
	}
	var found []time.Time
	shown := map[time.Time]bool{}
	at := func(t, clock time.Time) {
		if is(clock.Hour()*60+clock.Minute()) && (!daily || !shown[clock]) {
			found = append(found, t)
		}
		shown[clock] = true
	}
	for i := 1; i <= minutes; i++ {
		last, t := begin.Add(time.Duration(i-1)*time.Minute), begin.Add(time.Duration(i)*time.Minute)
		late := time.Duration(0)
		for clock := show(last).Add(time.Minute); clock.Before(show(t)); clock = clock.Add(time.Minute) {
			at(t.Add(late), clock)
			if daily {
				late += time.Minute
			}
		}
		at(t, show(t))
	}
	slices.SortFunc(found, time.Time.Compare)
	return slices.CompactFunc(found, time.Time.Equal)
}

// Through each change, from moments chosen at random, the next end is the one that who looks at the clock each minute sees.
func TestNextIsWhatTheClockShows(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	parts := []int{1, 5, 15, 30, 45, 60, 90, 120, 240, 360, 480, 720, 1440}
	for zone, dates := range changes {
		for _, date := range dates {
			for range 3 {
				middle, err := time.Parse(time.DateOnly, date)
				check.OK(t, err)
				begin, err := schedule.In(zone, middle.Add(-36*time.Hour))
				check.OK(t, err)
				every := parts[random.IntN(len(parts))]
				var clocks []time.Duration
				for range 1 + random.IntN(3) {
					clocks = append(clocks, time.Duration(random.IntN(240)-60+1440)*time.Minute%(24*time.Hour)) // 23:00 to 03:00
				}
				every1 := ends(begin, 5*1440, func(m int) bool { return m%every == 0 }, false)
				clocks1 := ends(begin, 5*1440, func(m int) bool { return slices.Contains(clocks, time.Duration(m)*time.Minute) }, true)
				for range 200 {
					now := begin.Add(20*time.Hour + time.Duration(random.Int64N(int64(48*time.Hour)))).Truncate(time.Second)
					got, want := schedule.NextEvery(now, time.Duration(every)*time.Minute), after(every1, now)
					check.That(t, got.Equal(want), "seed %d: %s: every %d min after %s: %s, want %s", seed, zone, every, now, got, want)
					got, want = schedule.NextOf(now, clocks), after(clocks1, now)
					check.That(t, got.Equal(want), "seed %d: %s: %v after %s: %s, want %s", seed, zone, clocks, now, got, want)
				}
			}
		}
	}
}

func after(times []time.Time, now time.Time) time.Time {
	for _, t := range times {
		if t.After(now) {
			return t
		}
	}
	return time.Time{}
}

func TestWhatIsNoClock(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "24:00", "9", "09:60", "x"} {
		check.Failsf(t, check.Err(schedule.Clock(text)), "%q was read", text)
	}
	check.Failsf(t, check.Err(schedule.In("Mars/Olympus", time.Now())), "a zone that is none was found")
}
