package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
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
// that it jumps over is when it jumps, or as much later as it jumps. It knows of a zone only the times that its clock
// shows.
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

// Through each change, from moments chosen at random, the next end is the one found by looking at the clock each minute.
func TestNextIsWhatTheClockShows(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	parts := []int{1, 5, 15, 30, 45, 60, 90, 120, 240, 360, 480, 720, 1440}
	for zone, dates := range changes {
		for _, date := range dates {
			for range 3 {
				middle := check.Must(time.Parse(time.DateOnly, date))(t)
				begin := check.Must(schedule.In(zone, middle.Add(-36*time.Hour)))(t)
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

func TestQuietUntil(t *testing.T) {
	t.Parallel()
	const none = ""
	night := &contracts.QuietHours{From: "22:00", To: "07:00"}
	// Asia/Jerusalem: on 2026-03-27 the clock goes from 02:00 to 03:00, on 2026-10-25 from 02:00 back to 01:00.
	for name, test := range map[string]struct {
		hours     *contracts.QuietHours
		zone      string
		now, want string // RFC 3339, UTC
	}{
		"no hours":                     {nil, "", "2026-01-10T23:00:00Z", none},
		"hours of no length":           {&contracts.QuietHours{From: "22:00", To: "22:00"}, "", "2026-01-10T22:00:00Z", none},
		"before":                       {night, "", "2026-01-10T21:59:59Z", none},
		"at the beginning":             {night, "", "2026-01-10T22:00:00Z", "2026-01-11T07:00:00Z"},
		"before midnight":              {night, "", "2026-01-10T23:59:59Z", "2026-01-11T07:00:00Z"},
		"at midnight":                  {night, "", "2026-01-11T00:00:00Z", "2026-01-11T07:00:00Z"},
		"after midnight":               {night, "", "2026-01-11T06:59:59Z", "2026-01-11T07:00:00Z"},
		"at the end":                   {night, "", "2026-01-11T07:00:00Z", none},
		"over the end of the year":     {night, "", "2025-12-31T23:00:00Z", "2026-01-01T07:00:00Z"},
		"on a leap day":                {night, "", "2028-02-28T23:00:00Z", "2028-02-29T07:00:00Z"},
		"by day":                       {&contracts.QuietHours{From: "13:00", To: "15:00"}, "", "2026-01-10T14:00:00Z", "2026-01-10T15:00:00Z"},
		"by day, at night":             {&contracts.QuietHours{From: "13:00", To: "15:00"}, "", "2026-01-10T02:00:00Z", none},
		"in the user's zone":           {night, "Asia/Jerusalem", "2026-01-10T20:00:00Z", "2026-01-11T05:00:00Z"},
		"evening there, noon here":     {night, "Asia/Tokyo", "2026-01-10T13:00:00Z", "2026-01-10T22:00:00Z"},
		"through the night in spring":  {night, "Asia/Jerusalem", "2026-03-26T20:00:00Z", "2026-03-27T04:00:00Z"}, // 8 hours
		"through the night in autumn":  {night, "Asia/Jerusalem", "2026-10-24T19:00:00Z", "2026-10-25T05:00:00Z"}, // 10 hours
		"an end that is jumped over":   {&contracts.QuietHours{From: "22:00", To: "02:30"}, "Asia/Jerusalem", "2026-03-26T23:00:00Z", "2026-03-27T00:30:00Z"},
		"an end that comes twice":      {&contracts.QuietHours{From: "22:00", To: "01:30"}, "Asia/Jerusalem", "2026-10-24T22:10:00Z", "2026-10-24T23:30:00Z"},
		"between the two ends":         {&contracts.QuietHours{From: "22:00", To: "01:30"}, "Asia/Jerusalem", "2026-10-24T22:50:00Z", "2026-10-24T23:30:00Z"},
		"after both ends":              {&contracts.QuietHours{From: "22:00", To: "01:30"}, "Asia/Jerusalem", "2026-10-24T23:30:00Z", none},
		"a beginning that comes twice": {&contracts.QuietHours{From: "01:30", To: "06:00"}, "Asia/Jerusalem", "2026-10-24T22:30:00Z", "2026-10-25T04:00:00Z"},
		"before one that is jumped":    {&contracts.QuietHours{From: "02:30", To: "06:00"}, "Asia/Jerusalem", "2026-03-26T23:59:59Z", none},
		"a beginning that is jumped":   {&contracts.QuietHours{From: "02:30", To: "06:00"}, "Asia/Jerusalem", "2026-03-27T00:15:00Z", "2026-03-27T03:00:00Z"},
		"hours that are jumped over":   {&contracts.QuietHours{From: "02:10", To: "02:50"}, "Asia/Jerusalem", "2026-03-27T00:20:00Z", "2026-03-27T00:50:00Z"},
		"the night of a skipped day":   {night, "Pacific/Apia", "2011-12-30T11:00:00Z", "2011-12-30T17:00:00Z"}, // 31st, 01:00
		"after one that was jumped":    {&contracts.QuietHours{From: "02:30", To: "06:00"}, "Asia/Jerusalem", "2026-03-27T00:30:00Z", "2026-03-27T03:00:00Z"},
		"half an hour, on Lord Howe":   {night, "Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-04T20:30:00Z"},
		"an end at midnight":           {&contracts.QuietHours{From: "20:00", To: "00:00"}, "", "2026-01-10T23:59:00Z", "2026-01-11T00:00:00Z"},
		"after an end at midnight":     {&contracts.QuietHours{From: "20:00", To: "00:00"}, "", "2026-01-11T00:00:00Z", none},
		"a beginning at midnight":      {&contracts.QuietHours{From: "00:00", To: "07:00"}, "", "2026-01-11T00:00:00Z", "2026-01-11T07:00:00Z"},
		"all day but for one minute":   {&contracts.QuietHours{From: "07:01", To: "07:00"}, "", "2026-01-11T07:01:00Z", "2026-01-12T07:00:00Z"},
		"all day, in that one minute":  {&contracts.QuietHours{From: "07:01", To: "07:00"}, "", "2026-01-11T07:00:30Z", none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := check.Must(time.Parse(time.RFC3339, test.now))(t)
			got := check.Must(schedule.QuietUntil(now, test.hours, test.zone))(t)
			text := none
			if !got.IsZero() {
				text = got.UTC().Format(time.RFC3339)
			}
			check.Same(t, "text", text, test.want)
		})
	}
}

// Minute by minute through both changes of the clocks: quiet is one stretch a night, and ends when it said.
func TestQuietIsOneStretch(t *testing.T) {
	t.Parallel()
	for _, begin := range []string{"2026-03-26T00:00:00Z", "2026-10-24T00:00:00Z"} {
		now := check.Must(time.Parse(time.RFC3339, begin))(t)
		for _, hours := range []contracts.QuietHours{{From: "22:00", To: "07:00"}, {From: "00:30", To: "01:30"}, {From: "01:30", To: "02:30"}} {
			var promised time.Time
			stretches := 0
			for at := now; at.Before(now.Add(48 * time.Hour)); at = at.Add(time.Minute) {
				until := check.Must(schedule.QuietUntil(at, &hours, "Asia/Jerusalem"))(t)
				switch {
				case promised.IsZero() && !until.IsZero():
					stretches++
				case !promised.IsZero() && until.IsZero() && !promised.Equal(at):
					t.Errorf("%v: ended at %s, promised %s", hours, at, promised)
				case !promised.IsZero() && !until.IsZero() && !until.Equal(promised):
					t.Errorf("%v: at %s the end moved from %s to %s", hours, at, promised, until)
				}
				promised = until
			}
			check.That(t, stretches <= 3, "%v: %d stretches in two days", hours, stretches)
		}
	}
}

func TestUntilRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []contracts.QuietHours{{From: "x", To: "07:00"}, {From: "22:00", To: "25:00"}} {
		check.Failsf(t, check.Err(schedule.QuietUntil(time.Now(), &bad, "")), "%v was accepted", bad)
	}
	check.Failsf(t, check.Err(schedule.QuietUntil(time.Now(), &contracts.QuietHours{From: "22:00", To: "07:00"}, "Mars/Olympus")),
		"a zone that is none was accepted")
}
