package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		cfg := b.config(t, func(c *worker.Config) {
			c.Version = "v1.2.3"
		})
		b.publish(t, "jobs.1", `{"n":1}`)

		begun := time.Now()

		r := run(t, b.js, cfg, policy, func(_ context.Context, job *worker.Job[order]) error {
			runs = append(runs, seen{time.Since(begun).Round(50 * time.Millisecond), job.Attempt, job.Deliveries})
			return answers[len(runs)-1]
		})

		for range answers {
			<-b.settled
		}

		check.Is(t, r.wait(), nil)

		letters = b.letters(t)

		check.Same(t, "messages left", b.left(t), 0)
	})
	return runs, letters
}

func TestFailedAttemptsWaitLongerEachTime(t *testing.T) {
	policy := worker.Policy{Backoff: worker.Exponential(2*time.Second, time.Minute), Jitter: -1, MaxAttempts: 4}
	runs, letters := script(t, policy, io.EOF, io.EOF, io.EOF, nil)

	want := []seen{{0, 1, 1}, {2 * time.Second, 2, 2}, {6 * time.Second, 3, 3}, {14 * time.Second, 4, 4}}
	check.Equal(t, want, runs)

	check.Same(t, "dead letters", len(letters), 0)
}

func TestRetryWaitsAsLongAsAsked(t *testing.T) {
	runs, _ := script(t, worker.Policy{}, worker.Retry(time.Hour, io.EOF), worker.Retry(0, nil), nil)

	want := []seen{{0, 1, 1}, {time.Hour, 2, 2}, {time.Hour, 3, 3}}
	check.Equal(t, want, runs)
}

func TestSnoozeUsesNoAttempt(t *testing.T) {
	policy := worker.Policy{Jitter: -1, MaxAttempts: 2}
	runs, letters := script(t, policy, worker.Snooze(10*time.Minute), worker.Snooze(0), worker.Snooze(20*time.Minute),
		io.EOF, worker.Snooze(time.Minute), io.EOF)

	want := []seen{
		{0, 1, 1},
		{10 * time.Minute, 1, 2},
		{10 * time.Minute, 1, 3},
		{30 * time.Minute, 1, 4},
		{30*time.Minute + time.Second, 2, 5},
		{30*time.Minute + time.Second + time.Minute, 2, 6},
	}
	check.Equal(t, want, runs)

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
		Payload: []byte(`{"n":1}`), Reason: worker.ReasonExhausted, Sequence: 1, Signature: "no answer from #:#",
		Stream: stream, Subject: "jobs.1", Version: "v1.2.3", Worker: t.Name(),
	}
	check.Equal(t, want, got)
}

func TestCancelGivesUpAtOnce(t *testing.T) {
	_, letters := script(t, worker.Policy{}, worker.Cancel(errors.New("no such place")))
	check.That(t, len(letters) == 1 && letters[0].Reason == worker.ReasonCancelled && letters[0].Attempts == 1 &&
		strings.Contains(letters[0].Error, "no such place"),
		"letters: %+v, want one, cancelled at attempt 1", letters)
}

func TestPanicsAndGoexitsAreFailedAttempts(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	cfg := b.config(t, func(c *worker.Config) { c.Concurrency = 1 }) // one lost slot would stop it
	policy := worker.Policy{Backoff: worker.Exponential(0, 0), MaxAttempts: 2}

	run(t, b.js, cfg, policy, func(_ context.Context, job *worker.Job[order]) error {
		switch job.Args.N {
		case 0:
			panic(io.ErrUnexpectedEOF)
		case 1:
			runtime.Goexit()
		}
		return nil
	})
	b.publishN(t, 3)

	last := make(map[string]worker.Settlement)
	for range 5 {
		s := receive(t, b.settled, "a settlement")
		last[s.Subject] = s
	}

	var fatal *worker.PanicError
	if s := last["jobs.0"]; s.Outcome != worker.OutcomeDead || !errors.As(s.Err, &fatal) || !errors.Is(s.Err, io.ErrUnexpectedEOF) {
		t.Errorf("panic: %s, %v; want dead, a PanicError that wraps its value", s.Outcome, s.Err)
	}

	if s := last["jobs.1"]; s.Outcome != worker.OutcomeDead || !errors.Is(s.Err, worker.ErrGoexit) {
		t.Errorf("goexit: %s, %v; want dead, ErrGoexit", s.Outcome, s.Err)
	}

	check.Same(t, "the job behind them", last["jobs.2"].Outcome, worker.OutcomeCompleted)

	for _, letter := range b.letters(t) {
		check.That(t, letter.Subject != "jobs.0" || strings.Contains(letter.Stack, "retry_test.go"),
			"the stack does not show the handler:\n%s", letter.Stack)
	}
}

func TestUndecodableMessagesBlockNobody(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	cfg := b.config(t, func(c *worker.Config) { c.Concurrency = 1 })

	poison := []string{"", "not json", `{"n":"text"}`, "\x00\xff", strings.Repeat("[", 100_000)}
	for _, payload := range poison {
		b.publish(t, "jobs.poison", payload)
	}

	b.publish(t, "jobs.good", `{"n":1}`)
	run(t, b.js, cfg, worker.Policy{}, complete)

	for range poison {
		s := receive(t, b.settled, "a settlement")
		check.That(t, s.Outcome == worker.OutcomeDead && s.Attempt == 1, "poison: %s at attempt %d, want dead at 1", s.Outcome, s.Attempt)
	}

	check.Same(t, "the job behind them", receive(t, b.settled, "the good job").Outcome, worker.OutcomeCompleted)

	letters := b.letters(t)
	for i, payload := range poison {
		check.That(t, string(letters[i].Payload) == payload && letters[i].Reason == worker.ReasonUndecodable,
			"letter %d: %d bytes, %s; want the %d published, undecodable", i, len(letters[i].Payload), letters[i].Reason, len(payload))
	}
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

			if late := got.at.Sub(due); late < 0 || late > lateness || got.id != r.ID {
				t.Errorf("due %s: started %s late as %q; want 0 to %s, %q", due, late, got.id, lateness, r.ID)
			}

			check.Same(t, fmt.Sprintf("%+v", job), r.State, want)
		}
	})
}

func TestDelayedJobsOfOneSubjectAllStart(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		jobs := make(chan *worker.Job[order], 10)
		run(t, b.js, b.config(t), worker.Policy{}, tell(jobs, theJob))
		<-b.ready // a server that stops while it makes a stream leaves a goroutine

		due := time.Now().Add(time.Hour)
		for i := range 3 {
			insert(t, c, worker.NewJob{Args: order{N: i}, At: due, Subject: "jobs.mail.u17"})
		}

		unique := insert(t, c, worker.NewJob{Args: order{N: 3}, At: due, Subject: "jobs.mail.u17", Unique: &worker.Unique{}})
		check.That(t, !unique.Duplicate, "a unique job beside delayed ones: %+v", unique)

		if s := jobOf(t, c, mailRef); s.State != worker.StateScheduled || !s.Due.Equal(due) || s.ID != unique.ID {
			t.Errorf("%+v; want scheduled for %s, job %s", s, due, unique.ID)
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

// A delayed job that is run now runs once, and not again when it was due.
func TestRunNowTakesTheScheduleAway(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		started := make(chan *worker.Job[order], 10)
		run(t, b.js, b.config(t), worker.Policy{}, tell(started, theJob))
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
					check.Same(t, name+": its state before", was.State, worker.StateScheduled)
				} else {
					check.Is(t, err, worker.ErrNoJob)
				}
				if err == nil {
					got := receive(t, started, name+" to start")
					check.That(t, got.ID == job.ID && got.Args.N == 7 && got.Subject == r.Subject, "%s: started %+v", name, got)
				}
			}
			pass(3 * time.Minute)
			check.Same(t, name+": starts until the neighbour is due", len(started), 0)
			pass(2 * time.Minute)
			check.Same(t, name+": the neighbour", receive(t, started, "the neighbour").ID, neighbour.ID)
		}
		_, err := c.RunNow(t.Context(), worker.JobRef{Sequence: 999})
		check.Is(t, err, worker.ErrNoJob)
	})
}

// RunSchedule inserts the jobs that a schedule inserts, and the schedule goes on.
func TestRunScheduleInsertsOneRun(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		check.That(t, schedule(t, c, minutely()), "a new schedule changed nothing")
		all := check.Must(c.Schedules(t.Context()))(t)
		for range 2 { // the second takes the place of the first, which waits
			r := check.Must(c.RunSchedule(t.Context(), all[0].Subject))(t)
			j := check.Must(c.Job(t.Context(), worker.JobRef{ID: r.ID, Sequence: r.Sequence}))(t)
			check.That(t, j.State == worker.StateQueued && string(j.Payload) == `{"n":1}` && j.Subject == "jobs.mail.digest", "run %+v", j)
		}
		page, err := c.Jobs(t.Context(), worker.JobFilter{Count: true})
		check.OK(t, err)
		check.Same(t, "schedules and runs", page.Counts.Messages, 2)
		started := make(chan *worker.Job[order], 10)
		run(t, b.js, b.config(t), worker.Policy{}, tell(started, theJob))
		receive(t, started, "the run")
		pass(61 * time.Second)
		check.Same(t, "runs since", len(started), 1)
		_, err = c.RunSchedule(t.Context(), "jobs.mail.other")
		check.Is(t, err, worker.ErrNoSchedule)
		check.Failsf(t, check.Err(c.RunSchedule(t.Context(), "jobs.>")), "a pattern was run")
	})
}

func TestCountsAndDelayedJobs(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		const later = 150
		for i := range later {
			insert(t, c, worker.NewJob{Args: order{N: i}, Delay: time.Duration(later-i) * time.Minute, Subject: "jobs.later"})
		}
		schedule(t, c, worker.Periodic{Args: order{}, Every: 24 * time.Hour, Name: "daily", Subject: "jobs.every"})
		cfg := b.config(t)
		cfg.Concurrency = 1
		started := make(chan bool, 10)
		run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
			if job.Args.N == 1 {
				return nil
			}
			started <- true
			<-ctx.Done()
			return ctx.Err()
		})
		insert(t, c, unique("done", 1, time.Hour))
		<-b.settled
		for range 3 {
			insert(t, c, worker.NewJob{Args: order{N: 2}, Subject: "jobs.some"})
		}
		<-started
		// The server counts a message for its consumer a moment after it stored it.
		synctest.Wait()
		page := check.Must(c.Jobs(t.Context(), worker.JobFilter{Count: true, States: []worker.State{worker.StateDone}}))(t)
		check.Equal(t, worker.Counts{
			AsOf: page.AsOf, Delivered: 1, Messages: later + 5, Queued: 2, Rest: later + 2, Ended: 1, Scheduled: later + 1, Detailed: true,
		}, page.Counts)
	})
}
