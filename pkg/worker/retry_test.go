package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// seen is a handler's note of one run.
type seen struct {
	At         time.Duration // since the test began
	Attempt    int
	Deliveries int
}

// script runs a job in a bubble whose handler answers each run by the next error of
// answers, and returns the runs.
func script(t *testing.T, policy worker.Policy, answers ...error) (runs []seen, letters []worker.DeadLetter) {
	t.Helper()

	bubble(t, func(t *testing.T, b *bundle) {
		cfg := b.config(t, func(c *worker.Config) { c.Version = "v1.2.3" })
		b.publish(t, "jobs.1", `{"n":1}`)

		begun := time.Now()

		r := run(t, b.js, cfg, policy, func(_ context.Context, job *worker.Job[order]) error {
			runs = append(runs, seen{time.Since(begun).Round(50 * time.Millisecond), job.Attempt, job.Deliveries})
			return answers[len(runs)-1]
		})

		b.awaitSettled(len(answers))

		check.ErrorIs(t, r.wait(), nil)

		letters = b.deadLetters(t)

		check.Equal(t, b.storedMessages(t), 0, "messages left")
	})
	return runs, letters
}

func TestFailedAttemptsWaitLongerEachTime(t *testing.T) {
	policy := worker.Policy{Backoff: worker.Exponential(2*time.Second, time.Minute), Jitter: -1, MaxAttempts: 4}
	runs, letters := script(t, policy, io.EOF, worker.Retry(time.Hour, io.EOF), io.EOF, nil)

	want := []seen{{0, 1, 1}, {2 * time.Second, 2, 2}, {time.Hour + 2*time.Second, 3, 3}, {time.Hour + 10*time.Second, 4, 4}}
	check.Equal(t, runs, want)

	check.Equal(t, len(letters), 0, "dead letters")
}

func TestSnoozeUsesNoAttempt(t *testing.T) {
	const shortest = 100 * time.Millisecond
	policy := worker.Policy{Jitter: -1, MaxAttempts: 2}
	runs, letters := script(t, policy, worker.Snooze(10*time.Minute), worker.Snooze(0), worker.Snooze(20*time.Minute),
		io.EOF, worker.Snooze(time.Minute), io.EOF)

	want := []seen{
		{0, 1, 1},
		{10 * time.Minute, 1, 2},
		{10*time.Minute + shortest, 1, 3},
		{30*time.Minute + shortest, 1, 4},
		{30*time.Minute + shortest + time.Second, 2, 5},
		{30*time.Minute + shortest + time.Second + time.Minute, 2, 6},
	}
	check.Equal(t, runs, want)

	check.That(t, len(letters) == 1 && letters[0].Attempts == 2 && letters[0].Deliveries == 6,
		"letters: %+v, want one after 2 attempts in 6 deliveries", letters)
}

func TestLastAttemptEndsInTheDeadLetters(t *testing.T) {
	_, letters := script(t, worker.Policy{MaxAttempts: 2}, io.EOF, errors.New("no answer from 10.0.0.7:80"))
	check.Require(t, len(letters) == 1, "%d dead letters, want 1", len(letters))

	got := letters[0]
	check.That(t, !got.DeadAt.Before(got.EnqueuedAt), "dead at %s, before it was enqueued at %s", got.DeadAt, got.EnqueuedAt)

	got.DeadAt, got.EnqueuedAt = time.Time{}, time.Time{}

	want := worker.DeadLetter{
		Attempts: 2, Consumer: durable, Deliveries: 2, Error: "no answer from 10.0.0.7:80", ID: "JOBS:1", MaxAttempts: 2,
		Payload: []byte(`{"n":1}`), Reason: worker.ReasonExhausted, Sequence: 1, Signature: "no answer from <host>",
		Stream: stream, Subject: "jobs.1", Version: "v1.2.3", Worker: t.Name(),
	}
	check.Equal(t, got, want)
}

// lateness is how much later than due a job may start: the server's timer.
const lateness = 260 * time.Millisecond

func TestDelayedJobStartsWhenDueAndNotBefore(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
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
			within(t, "the start after it was due", got.at.Sub(due), 0, lateness)
			check.Equal(t, got.id, r.ID, "started")

			check.Equal(t, r.State, want, fmt.Sprintf("%+v", job))
		}
	})
}

func TestDelayedJobsOfOneSubjectAllStart(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		jobs := make(chan *worker.Job[order], 10)
		run(t, b.js, b.config(t), worker.Policy{}, sendEach(jobs, wholeJob))
		<-b.ready // a server that stops while it makes a stream leaves a goroutine

		due := time.Now().Add(time.Hour)
		for i := range 3 {
			insert(t, c, worker.NewJob{Args: order{N: i}, At: due, Subject: "jobs.mail.u17"})
		}

		unique := insert(t, c, worker.NewJob{Args: order{N: 3}, At: due, Subject: "jobs.mail.u17", Unique: &worker.Unique{}})
		check.That(t, !unique.Duplicate, "a unique job beside delayed ones: %+v", unique)

		s := jobOf(t, c, mailRef)
		check.That(t, s.State == worker.StateScheduled && s.Due.Equal(due) && s.ID == unique.ID, "%+v; want job %s, due %s", s, unique.ID, due)

		b.restart(t)

		seen := make(map[int]bool)
		for range 4 {
			seen[(<-jobs).Args.N] = true
		}

		natstest.Pass(time.Minute)

		check.That(t, len(seen) == 4 && len(jobs) == 0 && b.storedMessages(t) == 0,
			"%v ran, %d more, %d left; want 4, 0, 0", seen, len(jobs), b.storedMessages(t))
	})
}

// A delayed job that is run now runs once, and not again when it was due.
func TestRunNowTakesTheScheduleAway(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		started := make(chan *worker.Job[order], 10)
		run(t, b.js, b.config(t), worker.Policy{}, sendEach(started, wholeJob))
		for name, job := range map[string]worker.NewJob{
			"unique":     {Args: order{N: 7}, Delay: 2 * time.Minute, ID: "a", Subject: "jobs.mail", Unique: &worker.Unique{Key: "ada"}},
			"not unique": {Args: order{N: 7}, Delay: 2 * time.Minute, ID: "b", Subject: "jobs.mail"},
		} {
			r := insert(t, c, job)
			neighbour := job
			neighbour.ID, neighbour.Delay = "c"+r.ID, 4*time.Minute
			if neighbour.Unique != nil {
				neighbour.Unique = &worker.Unique{Key: "bob"}
			}
			insert(t, c, neighbour)
			for range 2 { // the second finds it gone, or done, and does nothing
				was, err := c.RunNow(t.Context(), worker.JobRef{ID: r.ID, Sequence: r.Sequence})
				if err == nil {
					check.Equal(t, was.State, worker.StateScheduled, name+": its state before")
				} else {
					check.ErrorIs(t, err, worker.ErrNoJob)
				}
				if err == nil {
					got := receive(t, started, name+" to start")
					check.That(t, got.ID == job.ID && got.Args.N == 7 && got.Subject == r.Subject, "%s: started %+v", name, got)
				}
			}
			natstest.Pass(3 * time.Minute)
			check.Equal(t, len(started), 0, name+": starts until the neighbour is due")
			natstest.Pass(2 * time.Minute)
			check.Equal(t, receive(t, started, "the neighbour").ID, neighbour.ID, name+": the neighbour")
		}
		check.ErrorIs(t, check.Err(c.RunNow(t.Context(), worker.JobRef{Sequence: 999})), worker.ErrNoJob)
	})
}
