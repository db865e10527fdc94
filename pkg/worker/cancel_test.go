package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// cancel cancels the job of the one key, which must have been in a state.
func cancel(t testing.TB, c *worker.Client, want worker.State) {
	t.Helper()

	s, err := c.Cancel(t.Context(), mailRef)
	if want == free {
		check.ErrorIs(t, err, worker.ErrNoJob)
		return
	}
	check.That(t, err == nil && s.State == want, "Cancel: %+v, %v; want a job that was %s", s, err, want)
}

func TestCancelledJobDoesNotStart(t *testing.T) {
	for name, test := range map[string]struct {
		delay time.Duration
		state worker.State
	}{
		"queued":            {state: worker.StateQueued},
		"scheduled":         {delay: time.Minute, state: worker.StateScheduled},
		"scheduled, firing": {delay: 200 * time.Millisecond, state: worker.StateQueued},
	} {
		runKeyedBubble(t, name, func(t *testing.T, b *bundle) {
			c := client(t, b.js)
			job := mail(worker.Unique{HoldDead: true, Keep: time.Minute})
			job.Delay = test.delay

			cancel(t, c, free)
			insert(t, c, job)
			cancel(t, c, test.state)

			check.Equal(t, b.queued(t), 0, "jobs queued after Cancel")

			job.Delay, job.Args = 0, order{N: 2}
			check.That(t, !insert(t, c, job).Duplicate, "the next was not accepted")

			r := run(t, b.js, b.config(t), worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
				check.That(t, job.Args.N == 2, "job %+v started", job)
				return nil
			})

			wantOutcome(t, <-b.settled, worker.OutcomeCompleted)

			cancel(t, c, worker.StateDone)
			natstest.Pass(time.Minute)

			check.ErrorIs(t, r.wait(), nil)

			natstest.Pass(25 * time.Hour) // the note as well

			n := b.storedMessages(t)
			check.That(t, n == 0 && len(b.settled) == 0, "%d messages left, %d more outcomes; want 0, 0", n, len(b.settled))
		})
	}
}

// TestCancelOfAKilledWorkersJob cancels a job whose worker is dead, so that nobody listens,
// and a job whose cancelling process is killed half-way.
func TestCancelOfAKilledWorkersJob(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		_ = b.killWorker(t, isHeartbeat, func(ctx context.Context, _ *worker.Job[order]) error { // closed
			<-ctx.Done()
			return ctx.Err()
		}, func() { insert(t, c, mail(worker.Unique{})) })

		b.cancelHalf(t, func(c *worker.Client) error { return check.Err(c.Cancel(t.Context(), mailRef)) })

		check.Equal(t, b.storedMessages(t), 2, "messages")

		cfg, outcomes := b.reporting(t)
		run(t, b.js, cfg, worker.Policy{}, complete)

		check.Equal(t, wantOutcome(t, <-outcomes, worker.OutcomeCancelled).Deliveries, 2, "delivery")

		r := insert(t, c, mail(worker.Unique{}))
		check.That(t, !r.Duplicate, "the next: %+v", r)

		wantOutcome(t, <-outcomes, worker.OutcomeCompleted)
	})
}

// cancelHalf cancels a job with a client whose process dies before its last request.
func (b *bundle) cancelHalf(t *testing.T, cancel func(*worker.Client) error) {
	t.Helper()
	dying := natstest.NewProxy(t, b.srv)
	nc, js := natstest.Connect(t, b.srv, dying.Through(), nats.MaxReconnects(0))
	dieAt(dying, func(f natstest.Frame) bool { return f.FromClient && strings.Contains(f.Subject, "MSG.DELETE") })
	check.That(t, cancel(client(t, js)) != nil, "the job is cancelled without the last request")
	nc.Close()
}

// TestHalfACancel is completed by another one, and by the insert of the next job.
func TestHalfACancel(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		half := func() {
			insert(t, c, mail(worker.Unique{}))
			b.cancelHalf(t, func(c *worker.Client) error { return check.Err(c.Cancel(t.Context(), mailRef)) })
			check.Equal(t, b.queued(t), 1, "jobs queued after half a Cancel")
		}
		half()
		cancel(t, c, worker.StateQueued) // found by its subject, it is a job that can be cancelled
		check.Equal(t, b.queued(t), 0, "jobs queued after another")
		cancel(t, c, worker.StateCancelled)

		half()
		job := mail(worker.Unique{})
		job.Args = order{N: 2}
		r := insert(t, c, job)

		run(t, b.js, b.config(t), worker.Policy{}, complete)

		s := <-b.settled
		check.That(t, !r.Duplicate && s.ID == r.ID && s.Outcome == worker.OutcomeCompleted, "%+v ran, receipt %+v; want the new job alone", s, r)

		natstest.Pass(time.Minute)

		check.That(t, len(b.settled) == 0 && b.queued(t) == 0, "%d more ran, %d queued", len(b.settled), b.queued(t))
	})
}

// TestCancelIsRefusedOnceTheJobHasGone looks at the condition of the note itself: nothing
// can come between reading a key and writing about it otherwise.
func TestCancelIsRefusedOnceTheJobHasGone(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		r := insert(t, client(t, b.js), mail(worker.Unique{}))
		p, js := natstest.Proxied(t, b.srv)
		want := fmt.Sprintf("Sequence: %d\r\n", r.Sequence)
		notes := 0

		p.Filter(func(f natstest.Frame) natstest.Verdict {
			if beforeRecord(f) {
				notes++

				check.That(t,
					strings.Contains(string(f.Raw), "Nats-Expected-Last-Subject-"+want) && strings.Contains(string(f.Raw), "Subject: *.mail.u17\r\n"),
					"note %q is not conditional", f.Raw)
			}
			return natstest.Relay
		})
		cancel(t, client(t, js), worker.StateQueued)

		check.Equal(t, notes, 1, "notes")
	})
}

// cancelJob cancels a job that must have been in a state.
func cancelJob(t testing.TB, c *worker.Client, r worker.Receipt, want worker.State) {
	t.Helper()
	j, err := c.Cancel(t.Context(), worker.JobRef{ID: r.ID, Sequence: r.Sequence, Subject: r.Subject})
	check.That(t, err == nil && j.State == want, "Cancel of %s: %s, %v; want a job that was %s", r.Subject, j.State, err, want)
}

// TestJobsAreCancelled cancels jobs that wait in each way that there is, and jobs that run, with a key and without. The handlers get to know
// within a heartbeat.
func TestJobsAreCancelled(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		w := run(t, b.js, b.config(t), worker.Policy{Jitter: -1}, func(ctx context.Context, job *worker.Job[order]) error {
			switch job.Args.N {
			case 0:
				return nil
			case 1:
				return worker.Retry(time.Minute, errors.New("not yet"))
			}
			<-ctx.Done()
			check.ErrorIs(t, context.Cause(ctx), worker.ErrCancelled)
			return errors.New("interrupted")
		})
		retried := insert(t, c, worker.NewJob{Args: order{N: 1}, Subject: "jobs.mail"})
		<-b.settled
		runs := insert(t, c, worker.NewJob{Args: order{N: 2}, Subject: "jobs.mail"})
		late := insert(t, c, worker.NewJob{Delay: time.Minute, Subject: "jobs.mail"})
		kept := insert(t, c, worker.NewJob{Subject: "jobs.kept", Unique: &worker.Unique{Keep: time.Hour}})
		keyed := insert(t, c, worker.NewJob{Args: order{N: 2}, Subject: "jobs.mail", Unique: &worker.Unique{Key: "u17", Keep: time.Hour}})
		<-b.settled
		natstest.Pass(2 * time.Second)

		cancelJob(t, c, retried, worker.StateRetrying)
		cancelJob(t, c, runs, worker.StateRunning)
		cancelJob(t, c, keyed, worker.StateRunning)
		cancelJob(t, c, late, worker.StateScheduled)
		begun := time.Now()
		for range 2 {
			s := <-b.settled
			check.That(t, s.Outcome == worker.OutcomeCancelled && (s.ID == runs.ID || s.ID == keyed.ID) && time.Since(begun) <= 5*time.Second/3,
				"%s %s after %s; want it cancelled within 5/3 s", s.ID, s.Outcome, time.Since(begun))
		}
		natstest.Pass(5 * time.Minute)
		check.That(t, len(b.settled) == 0 && len(b.deadLetters(t)) == 0 && b.storedMessages(t) == 2,
			"%d more outcomes, %d letters, %d messages; want 0, 0, 2", len(b.settled), len(b.deadLetters(t)), b.storedMessages(t))
		for _, r := range []worker.Receipt{retried, runs, keyed} {
			cancelJob(t, c, r, worker.StateCancelled)
		}
		cancelJob(t, c, kept, worker.StateDone)
		check.ErrorIs(t, w.wait(), nil) // a day of its heartbeats takes long
		natstest.Pass(25 * time.Hour)
		_, err := c.Cancel(t.Context(), worker.JobRef{ID: runs.ID, Sequence: runs.Sequence, Subject: runs.Subject})
		check.ErrorIs(t, err, worker.ErrNoJob)
	})
}

// TestCancelledJobLeavesTheLine cancels the second of three ordered jobs, and one that waits for a limit.
func TestCancelledJobLeavesTheLine(t *testing.T) {
	for name, policy := range map[string]worker.Policy{
		"ordered": {Ordered: true}, "limited": {Limits: []worker.Limit{{Name: "one", Concurrency: 1}}},
	} {
		runKeyedBubble(t, name, func(t *testing.T, b *bundle) {
			c := client(t, b.js)
			run(t, b.js, b.config(t), policy, func(_ context.Context, job *worker.Job[order]) error {
				check.That(t, job.Args.N != 2, "the cancelled job ran")
				natstest.Pass(time.Minute)
				return nil
			})
			var receipts []worker.Receipt
			for n := range 3 {
				receipts = append(receipts, insert(t, c, worker.NewJob{Args: order{N: n + 1}, Subject: "jobs.a"}))
				natstest.Pass(time.Second)
			}
			cancelJob(t, c, receipts[1], worker.StateDelivered)
			found := make(map[string]worker.Outcome)
			for range 3 {
				s := <-b.settled
				found[s.ID] = s.Outcome
			}
			check.Equal(t, found, map[string]worker.Outcome{
				receipts[0].ID: worker.OutcomeCompleted, receipts[1].ID: worker.OutcomeCancelled, receipts[2].ID: worker.OutcomeCompleted,
			})
		})
	}
}

// TestCancelSurvivesLossAndOldRecords cancels a job half, repeats that, and gives a stream that is recreated the same job.
func TestCancelSurvivesLossAndOldRecords(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		first := run(t, b.js, b.config(t), worker.Policy{}, complete) // makes the bucket
		natstest.Pass(2 * time.Second)
		check.OK(t, first.wait())
		job := worker.NewJob{ID: "same", Subject: "jobs.a"}
		r := insert(t, c, job)
		b.cancelHalf(t, func(c *worker.Client) error {
			return check.Err(c.Cancel(t.Context(), worker.JobRef{Sequence: r.Sequence}))
		})
		check.Equal(t, b.storedMessages(t), 1, "messages")
		cancelJob(t, c, r, worker.StateQueued)
		check.Equal(t, b.storedMessages(t), 0, "messages")

		b.recreate(t)
		cfg, outcomes := b.reporting(t)
		run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, _ *worker.Job[order]) error {
			natstest.Pass(time.Minute)
			return ctx.Err()
		})
		again := insert(t, c, job)
		check.Require(t, again.Sequence == r.Sequence, "the new job is at %d, want %d", again.Sequence, r.Sequence)
		wantOutcome(t, <-outcomes, worker.OutcomeCompleted)
	})
}

// TestDelayedJobIsNotCancelledWhileItBecomesDue cancels it too late, or in time by a request that is lost.
func TestDelayedJobIsNotCancelledWhileItBecomesDue(t *testing.T) {
	for lost, after := range []time.Duration{1800 * time.Millisecond, 900 * time.Millisecond} {
		keyedBubble(t, func(t *testing.T, b *bundle) {
			p, js := natstest.Proxied(t, b.srv)
			r := insert(t, client(t, b.js), worker.NewJob{Delay: 2 * time.Second, Subject: "jobs.a"})
			natstest.Pass(after)
			p.Hit(func(f natstest.Frame) bool { return strings.Contains(f.Subject, ".MSG.DELETE.") }, natstest.WriteLost, lost)
			_, err := client(t, js).Cancel(t.Context(), worker.JobRef{Sequence: r.Sequence})
			check.ErrorContains(t, err, "becomes due at this moment")
		})
	}
}
