package worker_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// minutely is a schedule of one run a minute.
func minutely() worker.Periodic {
	return worker.Periodic{Args: order{N: 1}, Every: time.Minute, Name: "digest", Subject: "jobs.mail"}
}

// schedule stores a schedule and reports whether that changed anything.
func schedule(t testing.TB, c *worker.Client, p worker.Periodic) bool {
	t.Helper()
	return check.Must(c.Schedule(t.Context(), p))(t)
}

// TestPeriodicJobRuns follows a schedule from its start to its end. Instances that start
// in the meantime do not restart the interval.
func TestPeriodicJobRuns(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		starts := make(chan *worker.Job[order], 10)
		run(t, b.js, b.config(t), worker.Policy{}, sendEach(starts, wholeJob))

		began := time.Now()

		check.That(t, schedule(t, c, minutely()), "a new schedule changed nothing")

		ids := make(map[string]bool)

		for n := range 3 {
			natstest.Pass(40 * time.Second)

			check.That(t, !schedule(t, c, minutely()), "the same schedule was stored again")

			job := <-starts
			due := began.Round(time.Second).Add(time.Duration(n+1) * time.Minute)

			within(t, "the start after it was due", time.Since(due), 0, lateness)
			check.That(t, job.Subject == "jobs.mail.digest" && job.Args.N == 1, "run %d: %+v", n, job)

			ids[job.ID] = true
		}

		check.That(t, len(ids) == 3, "three runs have the IDs %v", ids)

		slower := minutely()
		slower.Every = 10 * time.Minute

		check.That(t, schedule(t, c, slower), "another interval changed nothing")

		natstest.Pass(9 * time.Minute)

		check.That(t, len(starts) == 0, "the schedule that was replaced goes on")

		<-starts

		check.ErrorIs(t, errors.Join(c.Unschedule(t.Context(), "jobs.mail.digest"), c.Unschedule(t.Context(), "jobs.mail.digest")), nil)

		natstest.Pass(30 * time.Minute)

		n := b.storedMessages(t)
		check.That(t, len(starts) == 0 && n == 0, "%d runs after the end, %d messages left", len(starts), n)
	})
}

// TestRunsThatWait has nobody work for an hour.
func TestRunsThatWait(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		schedule(t, c, minutely())
		natstest.Pass(time.Hour + time.Second)

		all := make(chan string, 100)
		r := run(t, b.js, b.config(t), worker.Policy{}, sendEach(all, subjectOf))

		natstest.Pass(10 * time.Second)

		check.ErrorIs(t, r.wait(), nil)

		check.Require(t, len(all) == 1, "%d runs, want 1", len(all))
		check.Equal(t, <-all, "jobs.mail.digest", "the run")
	})
}

// TestCronHasATimeZone expects the morning in Jerusalem, two hours before that in UTC.
func TestCronHasATimeZone(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		starts := make(chan time.Time, 10)
		run(t, b.js, b.config(t), worker.Policy{}, sendEach(starts, timeNow))

		p := worker.Periodic{Cron: "10 2 * * 6", Name: "morning", Subject: "jobs.mail", TimeZone: "Asia/Jerusalem"}
		schedule(t, c, p) // the bubble begins on Saturday, 1 January 2000, at midnight in UTC

		want := time.Date(2000, 1, 1, 0, 10, 0, 0, time.UTC)
		within(t, "the start after it was due", (<-starts).Sub(want), 0, lateness)

		got, err := c.Schedules(t.Context())
		listed := []worker.Scheduled{{Cron: "0 " + p.Cron, Subject: "jobs.mail.morning", TimeZone: p.TimeZone}}

		diff := cmp.Diff(listed, got, cmpopts.IgnoreFields(worker.Scheduled{}, "Since"))
		check.That(t, diff == "" && err == nil, "%v, -want +got\n%s", err, diff)
	})
}

// TestEveryInstanceSchedules starts many at once: one stores the schedule, and all have it. It does not hold the key of its runs.
func TestEveryInstanceSchedules(t *testing.T) {
	t.Parallel()

	b := keyed(t, nil)

	var changes atomic.Int32
	var group sync.WaitGroup

	for range 16 {
		group.Go(func() {
			changed, err := client(t, b.js).Schedule(t.Context(), minutely())
			check.ErrorIs(t, err, nil)

			if changed {
				changes.Add(1)
			}
		})
	}

	group.Wait()

	check.Equal(t, changes.Load(), 1, "instances stored it")

	c := client(t, b.js)
	r := insert(t, c, worker.NewJob{Args: order{}, Subject: "jobs.mail", Unique: &worker.Unique{Key: "digest"}})
	check.That(t, !r.Duplicate, "the schedule is in the way: %+v", r)

	got, err := c.Schedules(t.Context())
	check.That(t, err == nil && len(got) == 1 && got[0].Every == time.Minute, "%+v, %v", got, err)
}

func TestBadSchedules(t *testing.T) {
	t.Parallel()

	b := keyed(t, nil)
	c := client(t, b.js)

	for want, p := range map[string]worker.Periodic{
		"either Cron or Every":            {Name: "a", Subject: "jobs.mail"},
		"goes with Cron only":             {Every: time.Minute, Name: "a", Subject: "jobs.mail", TimeZone: "UTC"},
		"whole seconds":                   {Every: 1500 * time.Millisecond, Name: "a", Subject: "jobs.mail"},
		"an Every of 2190000h":            {Every: 2190000 * time.Hour, Name: "a", Subject: "jobs.mail"}, // 250 years
		"an Every of 87600h0m1s":          {Every: 87600*time.Hour + time.Second, Name: "a", Subject: "jobs.mail"},
		"an Every of 2562047h":            {Every: math.MaxInt64, Name: "a", Subject: "jobs.mail"},
		"an Every of -1m0s":               {Every: -time.Minute, Name: "a", Subject: "jobs.mail"},
		`a TimeZone of "Local"`:           {Cron: "@daily", Name: "a", Subject: "jobs.mail", TimeZone: "Local"},
		`a TimeZone of " UTC"`:            {Cron: "@daily", Name: "a", Subject: "jobs.mail", TimeZone: " UTC"}, // the server reads "UTC"
		"use five fields":                 {Cron: "@at 2000-01-01T00:00:00Z", Name: "a", Subject: "jobs.mail"},
		"empty id":                        {Cron: "@daily", Subject: "jobs.mail"},
		"no subject for a job":            {Cron: "@daily", Name: "a", Subject: "jobs.*"},
		"cannot read Periodic.Cron":       {Cron: "now and then", Name: "a", Subject: "jobs.mail"},
		"does not know Periodic.TimeZone": {Cron: "@daily", Name: "a", Subject: "jobs.mail", TimeZone: "Nowhere/At/All"},
		"start with Job- are taken":       {Cron: "@daily", Header: map[string][]string{"Job-Id": {"1"}}, Name: "a", Subject: "jobs.mail"},
	} {
		_, err := c.Schedule(t.Context(), p)
		check.That(t, err != nil && strings.Contains(err.Error(), strings.TrimSpace(want)), "%+v: %v, want %q in it", p, err, want)
	}
}

func TestNextRun(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time { return check.Must(time.Parse(time.RFC3339Nano, text))(t) }
	now := at("2026-07-01T08:30:00Z")
	for want, s := range map[string]worker.Scheduled{
		"2026-07-01T09:00:00Z": {Cron: "0 0 9 * * *"},
		"2026-07-02T06:00:00Z": {Cron: "0 0 9 * * *", TimeZone: "Asia/Jerusalem"}, // today's was at 06:00 UTC
		"2026-07-05T00:00:00Z": {Cron: "@weekly"},
		"2026-07-01T08:30:15Z": {Cron: "*/15 * * * * *"},
		"2026-07-01T09:30:00Z": {Every: time.Hour, Since: at("2026-07-01T08:29:59.7Z")},
		"2026-07-01T08:30:07Z": {Every: 10 * time.Second, Since: at("2026-06-01T00:00:06.6Z")},
		"2281-06-01T00:00:00Z": {Every: 255 * 365 * 24 * time.Hour, Since: at("2026-06-01T00:00:00Z").AddDate(0, 0, 62)}, // another program's
	} {
		got, err := s.Next(now)
		check.That(t, err == nil && got.Equal(at(want)), "%+v: %s, %v, want %s", s, got, err, want)
	}
	for _, s := range []worker.Scheduled{
		{Cron: "hello"}, {Cron: "0 0 9 * * *", TimeZone: "Mars/Base"}, {Every: 1}, {Every: -1}, {Cron: "@every 1h"}, {Cron: "0 0 0 31 2 *"},
	} {
		got, err := s.Next(now)
		check.That(t, err != nil, "%+v: %s, want an error", s, got)
	}
	_, err := worker.Scheduled{Cron: "0 0 9 * * 6", TimeZone: "Pacific/Apia"}.Next(at("2011-12-29T12:00:00Z"))
	check.That(t, err != nil, "a zone without a 30 December, where the server does not come to an end")
	for _, year := range []int{1, 10_000} {
		now := time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)
		for _, s := range []worker.Scheduled{{Every: time.Hour, Since: now.AddDate(-1, 0, 0)}, {Cron: "@hourly"}, {Every: time.Hour, Since: at("2026-06-01T00:00:00Z")}} {
			got, err := s.Next(now)
			check.That(t, err == nil && got.After(now), "%+v: %s, %v", s, got, err)
		}
	}
}

//go:linkname parseCron github.com/nats-io/nats-server/v2/server.parseCron
func parseCron(pattern string, zone *time.Location, after int64) (time.Time, error)

// TestNextRunIsThatOfTheServer compares the runs around each change of the clocks of zones whose clocks change at unusual times.
func TestNextRunIsThatOfTheServer(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for i, name := range []string{
		"", "Africa/Cairo", "Africa/Casablanca", "America/Asuncion", "America/Havana", "America/New_York", "America/Santiago", "America/Sao_Paulo",
		"America/St_Johns", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Jerusalem", "Asia/Kathmandu", "Asia/Tehran", "Atlantic/Azores",
		"Australia/Lord_Howe", "Europe/Berlin", "Pacific/Apia", "Pacific/Chatham",
	} {
		if testing.Short() && i%4 != 0 {
			continue // no goroutine is involved
		}
		zone := check.Must(time.LoadLocation(name))(t)
		changes := []time.Time{time.Date(2012, 2, 28, 0, 0, 0, 0, zone)}
		for at := changes[0]; at.Year() < 2030; {
			if _, at = at.ZoneBounds(); at.IsZero() {
				break
			}
			changes = append(changes, at)
		}
		for _, change := range changes {
			for _, cron := range []string{
				"0 0 9 * * 1-5", "0 30 0 * * *", "0 30 2 * * *", "0 15 1,3 * * 0", "0 0 0 1 * *", "0 0 12 30 12 *", "0 59 3 31 9-11 *", "0 */20 * * * *",
				"30 45 23 ? * sat", "0 0 0 29 2 1",
			} {
				for _, before := range []time.Duration{3 * day, day, 90 * time.Minute, time.Second, 0, -time.Hour, -day} {
					after := change.Add(-before)
					want, failed := parseCron(cron, zone, after.UnixNano())
					got, err := worker.Scheduled{Cron: cron, TimeZone: name}.Next(after)
					check.Require(t, got.Equal(want) && (err == nil) == (failed == nil), "%s in %s after %s: %s, %v, want %s, %v",
						cron, name, after.In(zone), got.In(zone), err, want, failed)
				}
			}
		}
	}
}
