package schedule_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsNoClock(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "24:00", "9", "09:60", "x"} {
		check.That(t, check.Err(schedule.Clock(text)) != nil, "%q was read", text)
	}
	check.That(t, check.Err(schedule.In("Mars/Olympus", time.Now())) != nil, "a zone that is none was found")
}

// What TestUsersAreToldByTheClockOnTheirWall does not have.
func TestQuietUntil(t *testing.T) {
	t.Parallel()
	const none = ""
	night := &contracts.QuietHours{From: "22:00", To: "07:00"}
	for name, test := range map[string]struct {
		hours     *contracts.QuietHours
		zone      string
		now, want string // RFC 3339, UTC
	}{
		"no hours":                   {nil, "", "2026-01-10T23:00:00Z", none},
		"hours of no length":         {&contracts.QuietHours{From: "22:00", To: "22:00"}, "", "2026-01-10T22:00:00Z", none},
		"over the end of the year":   {night, "", "2025-12-31T23:00:00Z", "2026-01-01T07:00:00Z"},
		"on a leap day":              {night, "", "2028-02-28T23:00:00Z", "2028-02-29T07:00:00Z"},
		"by day":                     {&contracts.QuietHours{From: "13:00", To: "15:00"}, "", "2026-01-10T14:00:00Z", "2026-01-10T15:00:00Z"},
		"by day, at night":           {&contracts.QuietHours{From: "13:00", To: "15:00"}, "", "2026-01-10T02:00:00Z", none},
		"the night of a skipped day": {night, "Pacific/Apia", "2011-12-30T11:00:00Z", "2011-12-30T17:00:00Z"}, // 31st, 01:00
		"half an hour, on Lord Howe": {night, "Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-04T20:30:00Z"},
		"an end at midnight":         {&contracts.QuietHours{From: "20:00", To: "00:00"}, "", "2026-01-10T23:59:00Z", "2026-01-11T00:00:00Z"},
		"all day but for one minute": {&contracts.QuietHours{From: "07:01", To: "07:00"}, "", "2026-01-11T07:01:00Z", "2026-01-12T07:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := check.Must(time.Parse(time.RFC3339, test.now))(t)
			got := check.Must(schedule.QuietUntil(now, test.hours, test.zone))(t)
			text := none
			if !got.IsZero() {
				text = got.UTC().Format(time.RFC3339)
			}
			check.Equal(t, text, test.want, "text")
		})
	}
}

func TestUntilRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []contracts.QuietHours{{From: "x", To: "07:00"}, {From: "22:00", To: "25:00"}} {
		check.That(t, check.Err(schedule.QuietUntil(time.Now(), &bad, "")) != nil, "%v was accepted", bad)
	}
	check.That(t, check.Err(schedule.QuietUntil(time.Now(), &contracts.QuietHours{From: "22:00", To: "07:00"}, "Mars/Olympus")) != nil,
		"a zone that is none was accepted")
}
