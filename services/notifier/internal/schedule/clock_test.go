package schedule_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Quiet hours and windows around changes of clocks, forward and back, by an hour and by half of one, in the night and at midnight.
// Each pair of moments is that of a notification, and that of its delivery: at the end of its window, and not in quiet hours.
// Moments are UTC, of the year 2000 unless they name another one.
func TestTimesOfDelivery(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ zone, quiet, window, moments string }{
		// America/Sao_Paulo, from 00:00 to 23:00: 02-27 02:00 UTC.
		{"America/Sao_Paulo", "22:00-07:00", "", "02-26 23:59:59 > 02-26 23:59:59, 02-27 00:00 > 02-27 10:00, 02-27 09:59:59 > 02-27 10:00, 02-27 10:00 > 02-27 10:00"},
		// 23:30 comes twice: quiet begins with the first.
		{"America/Sao_Paulo", "23:30-06:00", "", "02-27 01:29:59 > 02-27 01:29:59, 02-27 01:30 > 02-27 09:00, 02-27 02:15 > 02-27 09:00"},
		// 23:30 comes twice: quiet ends with the second.
		{"America/Sao_Paulo", "21:00-23:30", "", "02-27 01:00 > 02-27 02:30, 02-27 01:45 > 02-27 02:30, 02-27 02:30 > 02-27 02:30"},
		// Midnight comes once, an hour later than it seemed.
		{"America/Sao_Paulo", "20:00-00:00", "", "02-26 23:00 > 02-27 03:00, 02-27 02:00 > 02-27 03:00, 02-27 03:00 > 02-27 03:00"},
		{"America/Sao_Paulo", "00:00-07:00", "", "02-27 02:30 > 02-27 02:30, 02-27 03:00 > 02-27 10:00"},
		{"America/Sao_Paulo", "", "00:00", "02-27 01:30 > 02-27 03:00, 02-27 02:30 > 02-27 03:00, 02-27 03:00 > 02-28 03:00"},
		{"America/Sao_Paulo", "", "24h", "02-27 01:30 > 02-27 03:00, 02-27 02:30 > 02-27 03:00, 02-27 03:00 > 02-28 03:00"},
		{"America/Sao_Paulo", "", "1h", "02-27 01:30 > 02-27 02:00, 02-27 01:59:59 > 02-27 02:00, 02-27 02:00 > 02-27 03:00"},
		{"America/Sao_Paulo", "22:00-07:00", "2h", "02-27 00:30 > 02-27 10:00, 02-27 02:30 > 02-27 10:00, 02-27 03:30 > 02-27 10:00"},
		// Australia/Lord_Howe, from 02:00 to 01:30; Europe/Berlin, from 02:00 to 03:00: 03-25 15:00 UTC.
		{"Australia/Lord_Howe", "22:00-07:00", "", "03-25 11:30 > 03-25 20:30, 03-25 15:00 > 03-25 20:30"},
		{"Australia/Lord_Howe", "22:00-01:45", "", "03-25 14:30 > 03-25 15:15, 03-25 14:50 > 03-25 15:15, 03-25 15:15 > 03-25 15:15"},
		{"Australia/Lord_Howe", "01:45-05:00", "", "03-25 14:44:59 > 03-25 14:44:59, 03-25 14:45 > 03-25 18:30, 03-25 15:00 > 03-25 18:30"},
		{"Australia/Lord_Howe", "", "30m", "03-25 14:50 > 03-25 15:00, 03-25 15:10 > 03-25 15:30"},
		{"Australia/Lord_Howe", "", "1h", "03-25 14:50 > 03-25 15:30, 03-25 15:10 > 03-25 15:30, 03-25 15:30 > 03-25 16:30"},
		{"Asia/Kathmandu", "22:00-07:00", "", "03-25 16:14:59 > 03-25 16:14:59, 03-25 16:15 > 03-26 01:15"},
		{"Asia/Kathmandu", "", "1h", "03-25 16:14:59 > 03-25 16:15, 03-25 16:15 > 03-25 17:15"},
		{"Asia/Kolkata", "", "00:00", "03-25 18:29:59 > 03-25 18:30, 03-25 18:30 > 03-26 18:30"},
		{"Asia/Kolkata", "00:00-23:59", "", "03-25 18:29:59 > 03-25 18:29:59, 03-25 18:30 > 03-26 18:29"},
		{"Europe/Berlin", "22:00-07:00", "", "03-25 22:30 > 03-26 05:00, 03-26 01:00 > 03-26 05:00"},
		// 02:30 does not come: an end is as much later as the clock jumps, a beginning is when it jumps.
		{"Europe/Berlin", "22:00-02:30", "", "03-25 22:30 > 03-26 01:30, 03-26 01:15 > 03-26 01:30, 03-26 01:30 > 03-26 01:30"},
		{"Europe/Berlin", "02:30-06:00", "", "03-26 00:59:59 > 03-26 00:59:59, 03-26 01:00 > 03-26 04:00, 03-26 01:45 > 03-26 04:00"},
		{"Europe/Berlin", "02:10-02:50", "", "03-26 01:00 > 03-26 01:00, 03-26 01:20 > 03-26 01:50, 03-26 01:50 > 03-26 01:50"},
		{"Europe/Berlin", "07:01-07:00", "", "03-25 06:00:30 > 03-25 06:00:30, 03-25 06:01 > 03-26 05:00, 03-26 05:01 > 03-27 05:00"},
		{"Europe/Berlin", "", "02:30", "03-25 23:00 > 03-26 01:30, 03-26 01:29:59 > 03-26 01:30, 03-26 01:30 > 03-27 00:30"},
		{"Europe/Berlin", "", "1h", "03-26 00:30 > 03-26 01:00, 03-26 01:00 > 03-26 02:00"},
		{"Europe/Berlin", "", "2h", "03-26 00:30 > 03-26 01:00, 03-26 01:30 > 03-26 02:00"},
		{"Europe/Berlin", "", "24h", "03-25 23:00 > 03-26 22:00, 03-26 21:59:59 > 03-26 22:00"},
		{"Europe/Berlin", "22:00-07:00", "24h", "03-26 21:00 > 03-27 05:00, 03-26 22:00 > 03-28 05:00"},
		// America/New_York, from 02:00 to 03:00: 04-02 07:00 UTC.
		{"America/New_York", "02:00-03:00", "", "04-02 06:59:59 > 04-02 06:59:59, 04-02 07:00 > 04-02 07:00"},
		{"America/New_York", "22:00-07:00", "02:30", "04-02 03:30 > 04-02 11:00, 04-02 07:15 > 04-02 11:00, 04-02 07:30 > 04-03 11:00"},
		// Australia/Lord_Howe, from 02:00 to 02:30: 08-26 15:30 UTC.
		{"Australia/Lord_Howe", "22:00-07:00", "", "08-26 11:30 > 08-26 20:00, 08-26 15:30 > 08-26 20:00"},
		{"Australia/Lord_Howe", "22:00-02:15", "", "08-26 13:00 > 08-26 15:45, 08-26 15:30 > 08-26 15:45"},
		{"Australia/Lord_Howe", "02:15-04:00", "", "08-26 15:29:59 > 08-26 15:29:59, 08-26 15:30 > 08-26 17:00"},
		{"Australia/Lord_Howe", "", "02:10 00:10 17:00", "08-26 13:50 > 08-26 15:40, 08-26 15:35 > 08-26 15:40, 08-26 15:40 > 08-27 06:00"},
		{"Australia/Lord_Howe", "", "30m", "08-26 15:10 > 08-26 15:30, 08-26 15:30 > 08-26 16:00"},
		// America/Sao_Paulo, from 00:00 to 01:00: 10-08 03:00 UTC.
		{"America/Sao_Paulo", "22:00-07:00", "", "10-08 00:59:59 > 10-08 00:59:59, 10-08 01:00 > 10-08 09:00, 10-08 03:00 > 10-08 09:00"},
		// There is no midnight.
		{"America/Sao_Paulo", "20:00-00:00", "", "10-08 01:00 > 10-08 03:00, 10-08 03:00 > 10-08 03:00"},
		{"America/Sao_Paulo", "00:00-07:00", "", "10-08 02:59:59 > 10-08 02:59:59, 10-08 03:00 > 10-08 09:00"},
		{"America/Sao_Paulo", "00:30-00:50", "", "10-08 03:10 > 10-08 03:10, 10-08 03:40 > 10-08 03:50"},
		{"America/Sao_Paulo", "22:00-00:30", "", "10-08 02:30 > 10-08 03:30, 10-08 03:10 > 10-08 03:30"},
		{"America/Sao_Paulo", "", "00:00", "10-08 02:30 > 10-08 03:00, 10-08 03:00 > 10-09 02:00"},
		{"America/Sao_Paulo", "", "02:10 00:10 17:00", "10-08 02:30 > 10-08 03:10, 10-08 03:05 > 10-08 03:10, 10-08 03:10 > 10-08 04:10"},
		{"America/Sao_Paulo", "", "24h", "10-08 02:30 > 10-08 03:00, 10-08 03:00 > 10-09 02:00"},
		{"America/Sao_Paulo", "22:00-07:00", "24h", "10-08 02:30 > 10-08 09:00, 10-08 03:00 > 10-09 09:00"},
		// Europe/Berlin, from 03:00 to 02:00: 10-29 01:00 UTC.
		{"Europe/Berlin", "22:00-07:00", "", "10-28 20:30 > 10-29 06:00, 10-29 00:30 > 10-29 06:00, 10-29 01:30 > 10-29 06:00"},
		{"Europe/Berlin", "22:00-02:30", "", "10-28 20:30 > 10-29 01:30, 10-29 00:45 > 10-29 01:30, 10-29 01:30 > 10-29 01:30"},
		{"Europe/Berlin", "02:30-06:00", "", "10-29 00:29:59 > 10-29 00:29:59, 10-29 00:30 > 10-29 05:00, 10-29 01:15 > 10-29 05:00"},
		{"Europe/Berlin", "02:10-02:50", "", "10-29 00:10 > 10-29 01:50, 10-29 01:05 > 10-29 01:50, 10-29 01:50 > 10-29 01:50"},
		{"Europe/Berlin", "", "02:30", "10-29 00:15 > 10-29 00:30, 10-29 00:45 > 10-30 01:30, 10-29 01:15 > 10-30 01:30"},
		{"Europe/Berlin", "", "1h", "10-29 00:30 > 10-29 01:00, 10-29 01:00 > 10-29 02:00, 10-29 01:30 > 10-29 02:00"},
		{"Europe/Berlin", "", "24h", "10-28 21:59:59 > 10-28 22:00, 10-28 22:00 > 10-29 23:00"},
		// Elsewhere in the year, and in other years.
		{"", "22:00-22:00", "", "01-10 22:00 > 01-10 22:00"},
		{"", "22:00-07:00", "", "2025-12-31 23:00 > 2026-01-01 07:00, 02-28 23:00 > 02-29 07:00"},
		{"", "13:00-15:00", "", "01-10 14:00 > 01-10 15:00, 01-10 02:00 > 01-10 02:00"},
		{"Pacific/Apia", "22:00-07:00", "", "2011-12-30 11:00 > 2011-12-30 17:00"}, // the night of a day that was skipped
	} {
		for pair := range strings.SplitSeq(test.moments, ", ") {
			begin, end, _ := strings.Cut(pair, " > ")
			got := check.Must(schedule.In(test.zone, utc(t, begin)))(t)
			if every, err := time.ParseDuration(test.window); err == nil {
				got = schedule.NextEvery(got, every)
			} else if test.window != "" {
				got = schedule.NextOf(got, clocks(t, strings.Fields(test.window)...))
			}
			if from, to, ok := strings.Cut(test.quiet, "-"); ok {
				until := check.Must(schedule.QuietUntil(got, &contracts.QuietHours{From: from, To: to}, test.zone))(t)
				if !until.IsZero() {
					got = until
				}
			}
			check.Equal(t, got.UTC(), utc(t, end), test.zone, test.quiet, test.window, begin)
		}
	}
}

// utc reads a moment of the year 2000, or of another year.
func utc(t *testing.T, text string) time.Time {
	t.Helper()
	if strings.Count(text, "-") == 1 {
		text = "2000-" + text
	}
	return check.Must(time.Parse("2006-01-02 15:04:05"[:len(text)], text))(t)
}

func clocks(t *testing.T, texts ...string) (all []time.Duration) {
	t.Helper()
	for _, text := range texts {
		all = append(all, check.Must(schedule.Clock(text))(t))
	}
	return all
}

func TestWhatIsNoTime(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "24:00", "9", "09:60", "x"} {
		check.That(t, check.Err(schedule.Clock(text)) != nil, "%q was read", text)
	}
	for zone, quiet := range map[string]contracts.QuietHours{
		"": {From: "x", To: "07:00"}, "UTC": {From: "22:00", To: "25:00"}, "Mars/Olympus": {From: "22:00", To: "07:00"},
	} {
		check.That(t, check.Err(schedule.QuietUntil(time.Now(), &quiet, zone)) != nil, "%v in %q was accepted", quiet, zone)
	}
}
