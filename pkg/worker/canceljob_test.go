package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// cancelJob cancels a job that must have been in a state.
func cancelJob(t testing.TB, c *worker.Client, r worker.Receipt, want worker.State) {
	t.Helper()
	j, err := c.Cancel(t.Context(), worker.JobRef{ID: r.ID, Sequence: r.Sequence, Subject: r.Subject})
	check.That(t, err == nil && j.State == want, "Cancel of %s: %s, %v; want a job that was %s", r.Subject, j.State, err, want)
}

// TestJobWithoutAKeyIsCancelled cancels jobs that wait in each way that there is.
func TestJobWithoutAKeyIsCancelled(t *testing.T) {
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
			check.Is(t, context.Cause(ctx), worker.ErrCancelled)
			return errors.New("interrupted")
		})
		retried := insert(t, c, worker.NewJob{Args: order{N: 1}, Subject: "jobs.mail"})
		<-b.settled
		runs := insert(t, c, worker.NewJob{Args: order{N: 2}, Subject: "jobs.mail"})
		late := insert(t, c, worker.NewJob{Delay: time.Minute, Subject: "jobs.mail"})
		kept := insert(t, c, worker.NewJob{Subject: "jobs.kept", Unique: &worker.Unique{Keep: time.Hour}})
		<-b.settled
		pass(2 * time.Second)

		cancelJob(t, c, retried, worker.StateDelivered)
		cancelJob(t, c, runs, worker.StateRunning)
		cancelJob(t, c, late, worker.StateScheduled)
		begun := time.Now()
		if s := <-b.settled; s.Outcome != worker.OutcomeCancelled || s.ID != runs.ID || time.Since(begun) > 5*time.Second/3 {
			t.Errorf("%s %s after %s; want %s cancelled within 5/3 s", s.ID, s.Outcome, time.Since(begun), runs.ID)
		}
		pass(5 * time.Minute)
		if len(b.settled) != 0 || len(b.letters(t)) != 0 || b.left(t) != 1 {
			t.Errorf("%d more outcomes, %d letters, %d messages; want 0, 0, 1", len(b.settled), len(b.letters(t)), b.left(t))
		}
		for _, r := range []worker.Receipt{retried, runs} {
			cancelJob(t, c, r, worker.StateCancelled)
		}
		cancelJob(t, c, kept, worker.StateDone)
		check.Is(t, w.wait(), nil) // a day of its heartbeats takes long
		pass(25 * time.Hour)
		_, err := c.Cancel(t.Context(), worker.JobRef{ID: runs.ID, Sequence: runs.Sequence, Subject: runs.Subject})
		check.Is(t, err, worker.ErrNoJob)
	})
}

// TestCancelledJobLeavesTheLine cancels the second of three ordered jobs, and one that waits for a limit.
func TestCancelledJobLeavesTheLine(t *testing.T) {
	for name, policy := range map[string]worker.Policy{
		"ordered": {Ordered: true}, "limited": {Limits: []worker.Limit{{Name: "one", Concurrency: 1}}},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := keyed(t, srv)
			c := client(t, b.js)
			run(t, b.js, b.config(t), policy, func(_ context.Context, job *worker.Job[order]) error {
				check.That(t, job.Args.N != 2, "the cancelled job ran")
				pass(time.Minute)
				return nil
			})
			var receipts []worker.Receipt
			for n := range 3 {
				receipts = append(receipts, insert(t, c, worker.NewJob{Args: order{N: n + 1}, Subject: "jobs.a"}))
				pass(time.Second)
			}
			cancelJob(t, c, receipts[1], worker.StateDelivered)
			found := make(map[string]worker.Outcome)
			for range 3 {
				s := <-b.settled
				found[s.ID] = s.Outcome
			}
			check.Equal(t, map[string]worker.Outcome{
				receipts[0].ID: worker.OutcomeCompleted, receipts[1].ID: worker.OutcomeCancelled, receipts[2].ID: worker.OutcomeCompleted,
			}, found)
		})
	}
}

// TestCancelSurvivesLossAndOldRecords cancels a job half, repeats that, and gives a stream that is made anew the same job.
func TestCancelSurvivesLossAndOldRecords(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		first := run(t, b.js, b.config(t), worker.Policy{}, complete) // makes the bucket
		pass(2 * time.Second)
		check.OK(t, first.wait())
		job := worker.NewJob{ID: "same", Subject: "jobs.a"}
		r := insert(t, c, job)
		b.cancelHalf(t, func(c *worker.Client) error {
			return check.Err(c.Cancel(t.Context(), worker.JobRef{Sequence: r.Sequence}))
		})
		check.Same(t, "messages", b.left(t), 1)
		cancelJob(t, c, r, worker.StateQueued)
		check.Same(t, "messages", b.left(t), 0)

		check.OK(t, b.js.DeleteStream(t.Context(), stream))
		pass(time.Second)
		check.OK(t, check.Err(b.js.CreateStream(t.Context(), worker.StreamConfig(stream, pattern))))
		cfg, outcomes := b.reporting(t)
		run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, _ *worker.Job[order]) error {
			pass(time.Minute)
			return ctx.Err()
		})
		again := insert(t, c, job)
		check.Require(t, again.Sequence == r.Sequence, "the new job is at %d, want %d", again.Sequence, r.Sequence)
		s := <-outcomes
		check.That(t, s.Outcome == worker.OutcomeCompleted, "the new job: %s, %v; want completed", s.Outcome, s.Err)
	})
}

func TestDelayedJobIsNotCancelledWhileItBecomesDue(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		r := insert(t, c, worker.NewJob{Delay: time.Minute, Subject: "jobs.a"})
		pass(time.Minute - 200*time.Millisecond)
		_, err := c.Cancel(t.Context(), worker.JobRef{Sequence: r.Sequence})
		check.Contains(t, err, "becomes due at this moment")
	})
}
