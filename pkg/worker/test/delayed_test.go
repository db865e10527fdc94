package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// lateness is how much later than due a job may start: the server's timer.
const lateness = 260 * time.Millisecond

func TestDelayedJobStartsWhenDueAndNotBefore(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := keyed(t, srv)
		c := client(t, b.js)

		type start struct {
			at time.Time
			id string
		}

		starts := make(chan start, 10)
		run(t, b.js, b.config(t), worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			starts <- start{time.Now(), job.ID}
			return nil
		})

		for _, job := range []worker.NewJob{
			{Delay: 1700 * time.Millisecond},
			{At: time.Now().Add(1999 * time.Millisecond)},
			{Delay: 10 * time.Minute, ID: "mine"},
			{Delay: 20 * time.Minute, Unique: &worker.Unique{Keep: time.Minute, Key: "alone"}}, // the one before may not be gone yet
			{At: time.Now().Add(-time.Hour)},
		} {
			job.Args, job.Subject = order{}, "jobs.mail"
			now := time.Now()
			due, want := now.Add(job.Delay), worker.StateScheduled

			if job.At.After(now) {
				due = job.At
			} else if job.Delay == 0 {
				want = worker.StateQueued
			}

			r := insert(t, c, job)
			check.Require(t, !r.Duplicate, "%+v: %+v stands in the way", job, r)

			got := <-starts

			if late := got.at.Sub(due); late < 0 || late > lateness || got.id != r.ID {
				t.Errorf("due %s: started %s late as %q; want 0 to %s, %q", due, late, got.id, lateness, r.ID)
			}

			check.Same(t, fmt.Sprintf("%+v", job), r.State, want)
		}
	})
}

func TestDelayedJobsOfOneSubjectAllStart(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := keyed(t, srv)
		c := client(t, b.js)
		jobs := make(chan *worker.Job[order], 10)
		ready := make(chan bool, 10)
		run(t, b.js, b.config(t, func(c *worker.Config) { c.Hooks.Ready = func(is bool, _ error) { ready <- is } }), worker.Policy{},
			func(_ context.Context, job *worker.Job[order]) error {
				jobs <- job
				return nil
			})
		<-ready // a server that stops while it makes a stream leaves a goroutine

		due := time.Now().Add(time.Hour)
		for i := range 3 {
			insert(t, c, worker.NewJob{Args: order{N: i}, At: due, Subject: "jobs.mail.u17"})
		}

		unique := insert(t, c, worker.NewJob{Args: order{N: 3}, At: due, Subject: "jobs.mail.u17", Unique: &worker.Unique{}})
		check.That(t, !unique.Duplicate, "a unique job beside delayed ones: %+v", unique)

		if s, err := c.Inspect(t.Context(), "jobs.mail.u17", ""); err != nil || s.State != worker.StateScheduled || !s.Due.Equal(due) || s.ID != unique.ID {
			t.Errorf("%+v, %v; want scheduled for %s, job %s", s, err, due, unique.ID)
		}

		b.restart(t)

		seen := make(map[int]bool)
		for range 4 {
			seen[(<-jobs).Args.N] = true
		}

		pass(time.Minute)

		if len(seen) != 4 || len(jobs) != 0 || b.left(t) != 0 {
			t.Errorf("%v ran, %d more, %d left; want 4, 0, 0", seen, len(jobs), b.left(t))
		}
	})
}
