package notifier

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// clockChange is a change of clocks in the year 2000, in which fake time begins.
type clockChange struct {
	at      string            // UTC
	zones   map[string]string // those that change then or hours later, and the times that their clocks show before it and at it
	restart string            // when the server restarts
	cases   []clockCase
}

// clockCase is a user and the messages that they get. All moments are UTC.
type clockCase struct {
	zone, hours, kind string
	told              string // "published > told", and more of them
	moved             string // from when on they want something else: "at zone hours"
}

var clockChanges = []clockChange{
	{
		at: "02-27 02:00", zones: map[string]string{"America/Sao_Paulo": "00:00 23:00"},
		cases: []clockCase{
			{"America/Sao_Paulo", "22:00-07:00", "PLAIN", "02-26 23:59:59 > 02-26 23:59:59, 02-27 00:00 > 02-27 10:00, 02-27 00:30 > 02-27 10:00, " +
				"02-27 09:59:59 > 02-27 10:00, 02-27 10:00 > 02-27 10:00", ""},
			{"America/Sao_Paulo", "22:00-07:00", "URGENT", "02-27 01:30 > 02-27 01:30, 02-27 02:30 > 02-27 02:30", ""},
			// 23:30 comes twice: quiet begins with the first.
			{"America/Sao_Paulo", "23:30-06:00", "PLAIN", "02-27 01:29:59 > 02-27 01:29:59, 02-27 01:30 > 02-27 09:00, 02-27 02:15 > 02-27 09:00", ""},
			// 23:30 comes twice: quiet ends with the second.
			{"America/Sao_Paulo", "21:00-23:30", "PLAIN", "02-27 01:00 > 02-27 02:30, 02-27 01:45 > 02-27 02:30, 02-27 02:30 > 02-27 02:30", ""},
			// Midnight comes once, an hour later than it seemed.
			{"America/Sao_Paulo", "20:00-00:00", "PLAIN", "02-26 23:00 > 02-27 03:00, 02-27 02:00 > 02-27 03:00, 02-27 03:00 > 02-27 03:00", ""},
			{"America/Sao_Paulo", "00:00-07:00", "PLAIN", "02-27 02:30 > 02-27 02:30, 02-27 03:00 > 02-27 10:00", ""},
			{"America/Sao_Paulo", "", "AT_MIDNIGHT", "02-27 01:30 > 02-27 03:00, 02-27 02:30 > 02-27 03:00, 02-27 03:00 > 02-28 03:00", ""},
			{"America/Sao_Paulo", "", "EVERY_24H", "02-27 01:30 > 02-27 03:00, 02-27 02:30 > 02-27 03:00, 02-27 03:00 > 02-28 03:00", ""},
			{"America/Sao_Paulo", "", "EVERY_1H", "02-27 01:30 > 02-27 02:00, 02-27 01:59:59 > 02-27 02:00, 02-27 02:00 > 02-27 03:00", ""},
			{"America/Sao_Paulo", "22:00-07:00", "EVERY_2H", "02-27 00:30 > 02-27 10:00, 02-27 02:30 > 02-27 10:00, 02-27 03:30 > 02-27 10:00", ""},
			// A user with less quiet gets the message at the promised time, a user with more quiet later.
			{"America/Sao_Paulo", "22:00-07:00", "PLAIN", "02-27 00:30 > 02-27 10:00, 02-27 03:20 > 02-27 03:20", "02-27 03:07 America/Sao_Paulo"},
			{"America/Sao_Paulo", "22:00-07:00", "PLAIN", "02-27 00:30 > 02-27 11:30", "02-27 03:07 America/Sao_Paulo 22:00-08:30"},
			// A user who has moved gets the message by the window of the former place, and not in the quiet hours of the new one.
			{"America/Sao_Paulo", "22:00-23:30", "EVERY_24H", "02-27 00:30 > 02-27 03:15, 02-27 02:20 > 02-27 18:15", "02-27 02:07 Asia/Kathmandu 08:00-09:00"},
		},
	},
	{
		at: "03-25 15:00", zones: map[string]string{"Australia/Lord_Howe": "02:00 01:30", "Europe/Berlin": "02:00 03:00"}, restart: "03-26 02:10",
		cases: []clockCase{
			{"Australia/Lord_Howe", "22:00-07:00", "PLAIN", "03-25 11:30 > 03-25 20:30, 03-25 15:00 > 03-25 20:30", ""},
			{"Australia/Lord_Howe", "22:00-01:45", "PLAIN", "03-25 14:30 > 03-25 15:15, 03-25 14:50 > 03-25 15:15, 03-25 15:15 > 03-25 15:15", ""},
			{"Australia/Lord_Howe", "01:45-05:00", "PLAIN", "03-25 14:44:59 > 03-25 14:44:59, 03-25 14:45 > 03-25 18:30, 03-25 15:00 > 03-25 18:30", ""},
			{"Australia/Lord_Howe", "", "EVERY_30M", "03-25 14:50 > 03-25 15:00, 03-25 15:10 > 03-25 15:30", ""},
			{"Australia/Lord_Howe", "", "EVERY_1H", "03-25 14:50 > 03-25 15:30, 03-25 15:10 > 03-25 15:30, 03-25 15:30 > 03-25 16:30", ""},
			{"Asia/Kathmandu", "22:00-07:00", "PLAIN", "03-25 16:14:59 > 03-25 16:14:59, 03-25 16:15 > 03-26 01:15", ""},
			{"Asia/Kathmandu", "", "EVERY_1H", "03-25 16:14:59 > 03-25 16:15, 03-25 16:15 > 03-25 17:15", ""},
			{"Asia/Kolkata", "", "AT_MIDNIGHT", "03-25 18:29:59 > 03-25 18:30, 03-25 18:30 > 03-26 18:30", ""},
			{"Asia/Kolkata", "00:00-23:59", "PLAIN", "03-25 18:29:59 > 03-25 18:29:59, 03-25 18:30 > 03-26 18:29", ""},
			{"Europe/Berlin", "22:00-07:00", "PLAIN", "03-25 22:30 > 03-26 05:00, 03-26 01:00 > 03-26 05:00", ""},
			{"Europe/Berlin", "22:00-07:00", "URGENT", "03-26 00:59:59 > 03-26 00:59:59, 03-26 01:00 > 03-26 01:00", ""},
			// 02:30 does not come: an end is as much later as the clock jumps, a beginning is when it jumps.
			{"Europe/Berlin", "22:00-02:30", "PLAIN", "03-25 22:30 > 03-26 01:30, 03-26 01:15 > 03-26 01:30, 03-26 01:30 > 03-26 01:30", ""},
			{"Europe/Berlin", "02:30-06:00", "PLAIN", "03-26 00:59:59 > 03-26 00:59:59, 03-26 01:00 > 03-26 04:00, 03-26 01:45 > 03-26 04:00", ""},
			{"Europe/Berlin", "02:10-02:50", "PLAIN", "03-26 01:00 > 03-26 01:00, 03-26 01:20 > 03-26 01:50, 03-26 01:50 > 03-26 01:50", ""},
			{"Europe/Berlin", "07:01-07:00", "PLAIN", "03-25 06:00:30 > 03-25 06:00:30, 03-25 06:01 > 03-26 05:00, 03-26 05:01 > 03-27 05:00", ""},
			{"Europe/Berlin", "", "AT_HALF", "03-25 23:00 > 03-26 01:30, 03-26 01:29:59 > 03-26 01:30, 03-26 01:30 > 03-27 00:30", ""},
			{"Europe/Berlin", "", "EVERY_1H", "03-26 00:30 > 03-26 01:00, 03-26 01:00 > 03-26 02:00", ""},
			{"Europe/Berlin", "", "EVERY_2H", "03-26 00:30 > 03-26 01:00, 03-26 01:30 > 03-26 02:00", ""},
			{"Europe/Berlin", "", "EVERY_24H", "03-25 23:00 > 03-26 22:00, 03-26 21:59:59 > 03-26 22:00", ""},
			{"Europe/Berlin", "22:00-07:00", "EVERY_24H", "03-26 21:00 > 03-27 05:00, 03-26 22:00 > 03-28 05:00", ""},
			{"Europe/Berlin", "22:00-07:00", "THROTTLED", "03-25 22:30 > 03-26 05:00, 03-25 22:30 > 03-26 05:00, 03-25 22:30 > 03-26 06:00, " +
				"03-25 23:30 > 03-26 06:00, 03-26 01:30 > 03-26 07:00", ""},
			{"Europe/Berlin", "22:00-07:00", "THROTTLED", "03-25 20:30 > 03-25 20:30, 03-25 20:30 > 03-25 20:30, 03-25 20:30 > 03-26 05:00", ""},
		},
	},
	{
		at: "04-02 07:00", zones: map[string]string{"America/New_York": "02:00 03:00"},
		cases: []clockCase{
			{"America/New_York", "22:00-07:00", "PLAIN", "04-02 02:59:59 > 04-02 02:59:59, 04-02 03:00 > 04-02 11:00, 04-02 07:00 > 04-02 11:00", ""},
			{"America/New_York", "23:00-02:00", "PLAIN", "04-02 06:30 > 04-02 07:00, 04-02 07:00 > 04-02 07:00", ""},
			{"America/New_York", "02:00-03:00", "PLAIN", "04-02 06:59:59 > 04-02 06:59:59, 04-02 07:00 > 04-02 07:00", ""},
			{"America/New_York", "22:00-07:00", "AT_HALF", "04-02 03:30 > 04-02 11:00, 04-02 07:15 > 04-02 11:00, 04-02 07:30 > 04-03 11:00", ""},
		},
	},
	{
		at: "08-26 15:30", zones: map[string]string{"Australia/Lord_Howe": "02:00 02:30"},
		cases: []clockCase{
			{"Australia/Lord_Howe", "22:00-07:00", "PLAIN", "08-26 11:30 > 08-26 20:00, 08-26 15:30 > 08-26 20:00", ""},
			{"Australia/Lord_Howe", "22:00-02:15", "PLAIN", "08-26 13:00 > 08-26 15:45, 08-26 15:30 > 08-26 15:45", ""},
			{"Australia/Lord_Howe", "02:15-04:00", "PLAIN", "08-26 15:29:59 > 08-26 15:29:59, 08-26 15:30 > 08-26 17:00", ""},
			{"Australia/Lord_Howe", "", "AT_TEN_PAST", "08-26 13:50 > 08-26 15:40, 08-26 15:35 > 08-26 15:40, 08-26 15:40 > 08-27 06:00", ""},
			{"Australia/Lord_Howe", "", "EVERY_30M", "08-26 15:10 > 08-26 15:30, 08-26 15:30 > 08-26 16:00", ""},
		},
	},
	{
		at: "10-08 03:00", zones: map[string]string{"America/Sao_Paulo": "00:00 01:00"},
		cases: []clockCase{
			{"America/Sao_Paulo", "22:00-07:00", "PLAIN", "10-08 00:59:59 > 10-08 00:59:59, 10-08 01:00 > 10-08 09:00, 10-08 03:00 > 10-08 09:00", ""},
			// There is no midnight.
			{"America/Sao_Paulo", "20:00-00:00", "PLAIN", "10-08 01:00 > 10-08 03:00, 10-08 03:00 > 10-08 03:00", ""},
			{"America/Sao_Paulo", "00:00-07:00", "PLAIN", "10-08 02:59:59 > 10-08 02:59:59, 10-08 03:00 > 10-08 09:00", ""},
			{"America/Sao_Paulo", "00:30-00:50", "PLAIN", "10-08 03:10 > 10-08 03:10, 10-08 03:40 > 10-08 03:50", ""},
			{"America/Sao_Paulo", "22:00-00:30", "PLAIN", "10-08 02:30 > 10-08 03:30, 10-08 03:10 > 10-08 03:30", ""},
			{"America/Sao_Paulo", "", "AT_MIDNIGHT", "10-08 02:30 > 10-08 03:00, 10-08 03:00 > 10-09 02:00", ""},
			{"America/Sao_Paulo", "", "AT_TEN_PAST", "10-08 02:30 > 10-08 03:10, 10-08 03:05 > 10-08 03:10, 10-08 03:10 > 10-08 04:10", ""},
			{"America/Sao_Paulo", "", "EVERY_24H", "10-08 02:30 > 10-08 03:00, 10-08 03:00 > 10-09 02:00", ""},
			{"America/Sao_Paulo", "22:00-07:00", "EVERY_24H", "10-08 02:30 > 10-08 09:00, 10-08 03:00 > 10-09 09:00", ""},
		},
	},
	{
		at: "10-29 01:00", zones: map[string]string{"America/New_York": "02:00 01:00", "Europe/Berlin": "03:00 02:00"},
		cases: []clockCase{
			{"Europe/Berlin", "22:00-07:00", "PLAIN", "10-28 20:30 > 10-29 06:00, 10-29 00:30 > 10-29 06:00, 10-29 01:30 > 10-29 06:00", ""},
			{"Europe/Berlin", "22:00-02:30", "PLAIN", "10-28 20:30 > 10-29 01:30, 10-29 00:45 > 10-29 01:30, 10-29 01:30 > 10-29 01:30", ""},
			{"Europe/Berlin", "02:30-06:00", "PLAIN", "10-29 00:29:59 > 10-29 00:29:59, 10-29 00:30 > 10-29 05:00, 10-29 01:15 > 10-29 05:00", ""},
			{"Europe/Berlin", "02:10-02:50", "PLAIN", "10-29 00:10 > 10-29 01:50, 10-29 01:05 > 10-29 01:50, 10-29 01:50 > 10-29 01:50", ""},
			{"Europe/Berlin", "", "AT_HALF", "10-29 00:15 > 10-29 00:30, 10-29 00:45 > 10-30 01:30, 10-29 01:15 > 10-30 01:30", ""},
			{"Europe/Berlin", "", "EVERY_1H", "10-29 00:30 > 10-29 01:00, 10-29 01:00 > 10-29 02:00, 10-29 01:30 > 10-29 02:00", ""},
			{"Europe/Berlin", "", "EVERY_24H", "10-28 21:59:59 > 10-28 22:00, 10-28 22:00 > 10-29 23:00", ""},
			{"Europe/Berlin", "22:00-07:00", "THROTTLED", "10-28 21:30 > 10-29 06:00, 10-28 21:30 > 10-29 06:00, 10-29 01:30 > 10-29 07:00", ""},
			{"America/New_York", "22:00-07:00", "PLAIN", "10-29 02:30 > 10-29 12:00, 10-29 06:00 > 10-29 12:00", ""},
			{"America/New_York", "22:00-01:30", "PLAIN", "10-29 05:45 > 10-29 06:30, 10-29 06:00 > 10-29 06:30", ""},
			{"America/New_York", "22:00-07:00", "AT_MIDNIGHT", "10-29 03:30 > 10-29 12:00, 10-29 04:30 > 10-30 12:00", ""},
		},
	},
}

// Around changes of the clocks of a year, forward and back, by an hour and by half of one, in the night and at midnight: users in
// several zones, whose quiet hours and digests begin, end or lie where the clock jumps or comes twice. Each event comes in over NATS
// and is told once, at the moment that the table names: in the inbox at once; by the channel not in quiet hours unless it is critical,
// as soon as they end, and in the digest of its window. Some users want something else in the meantime, and once the server restarts.
//
// A notifier asks its server for work each second, so a day of its life takes as long as a month of the server's. That is why notifiers
// live only around the moments at which something is to happen: all that waits goes from each to the next. A message that is sent
// too early or too late is seen all the same: it comes when some notifier starts, at a moment at which no message is due.
func TestUsersAreToldByTheClockOnTheirWall(t *testing.T) {
	for _, change := range clockChanges {
		t.Run(change.at, func(t *testing.T) {
			at := utc(t, change.at)
			change.check(t, at)
			tales := change.tales(t)
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				v := newClocked(t, srv)
				v.plan(at, nil)
				v.expect(tales)
				if change.restart != "" { // in the middle of somebody's quiet hours
					v.plan(utc(t, change.restart), func() {
						check.OK(t, srv.Restart(t.Context()))
					})
				}
				notifiers, lived := v.pass()
				t.Logf("%d events, %d messages, %d notifiers that lived for %s", len(tales), len(v.heard), notifiers, lived)
				v.judge(tales)
				v.inboxes(tales)
			}, natstest.At(slices.MinFunc(tales, func(a, b *tale) int { return a.at.Compare(b.at) }).at.Add(-time.Minute)))
		})
	}
}

// utc reads a moment of the year 2000.
func utc(t *testing.T, text string) time.Time {
	t.Helper()
	layout := "01-02 15:04:05"
	if len(text) < len(layout) {
		layout = "01-02 15:04"
	}
	return check.Must(time.Parse("2006-"+layout, "2000-"+text))(t)
}

// check checks that this machine's zones have the change.
func (ch clockChange) check(t *testing.T, at time.Time) {
	t.Helper()
	for zone, want := range ch.zones {
		before := at.Add(-time.Minute).In(check.Must(time.LoadLocation(zone))(t))
		_, change := before.ZoneBounds()
		_, offset := before.Zone()
		shows := change.In(time.FixedZone("", offset)).Format("15:04 ") + change.Format("15:04")
		check.Require(t, shows == want && change.Sub(at) < day, "%s: the clock goes from %s at %s, want %s: which zones does this machine know?",
			zone, shows, change, want)
	}
}

// hours reads quiet hours such as 22:00-07:00.
func hours(text string) *contracts.QuietHours {
	from, to, ok := strings.Cut(text, "-")
	if !ok {
		return nil
	}
	return &contracts.QuietHours{From: from, To: to}
}

// tales are those of the cases.
func (ch clockChange) tales(t *testing.T) (all []*tale) {
	t.Helper()
	for i, test := range ch.cases {
		user := &sleeper{id: fmt.Sprint("u", i), wishes: []wish{{zone: test.zone, hours: hours(test.hours)}}}
		if test.moved != "" {
			words := append(strings.Fields(test.moved), "")
			user.wishes = append(user.wishes, wish{from: utc(t, words[0]+" "+words[1]), zone: words[2], hours: hours(words[3])})
		}
		for j, pair := range strings.Split(test.told, ", ") {
			published, told, _ := strings.Cut(pair, " > ")
			all = append(all, &tale{at: utc(t, published), due: utc(t, told), id: fmt.Sprint(user.id, "-", j), kind: test.kind, user: user})
		}
	}
	return all
}
