package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

func TestDeadWorkersJobRunsElsewhereWithinTwoAckWaits(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 1700 * time.Millisecond, 7 * time.Second, time.Hour} {
		runBubble(t, after.String(), func(t *testing.T, b *bundle) {
			nc, js := natstest.Connect(t, b.srv)
			started := make(chan struct{})
			dead := make(chan struct{})
			first := run(t, js, b.config(t, stopAtOnce), worker.Policy{}, sendEach(started, nothing, dead))
			b.publish(t, "jobs.1", `{}`)
			<-started
			natstest.Pass(after)
			nc.Close() // as the server sees it when a process dies
			crashed := time.Now()
			close(dead)

			check.ErrorIs(t, first.wait(), nats.ErrConnectionClosed)

			again := make(chan *worker.Job[order], 1)
			run(t, b.js, b.config(t), worker.Policy{}, sendEach(again, wholeJob))

			job := <-again
			waited := time.Since(crashed)
			check.That(t, waited < 10*time.Second, "restarted after %s, want less than 2 AckWaits of 5s", waited)

			check.That(t, job.Attempt == 2 && job.Deliveries == 2,
				"attempt %d, delivery %d; want 2, 2: a crash uses an attempt", job.Attempt, job.Deliveries)
		})
	}
}

func stopAtOnce(c *worker.Config) { c.SoftStop, c.HardStop, c.SettleTimeout = -1, -1, time.Second }

func TestTimeoutEndsTheContextAndUsesAnAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		b.publish(t, "jobs.1", `{}`)
		run(t, b.js, b.config(t), worker.Policy{MaxAttempts: 1, Timeout: time.Minute}, func(ctx context.Context, _ *worker.Job[order]) error {
			<-ctx.Done()
			return ctx.Err()
		})

		s := <-b.settled

		var timeout *worker.TimeoutError
		check.That(t,
			errors.As(s.Err, &timeout) && errors.Is(s.Err, context.DeadlineExceeded) && s.Ran == time.Minute && s.Outcome == worker.OutcomeDead,
			"%s after %s: %v; want dead after 1m0s, a TimeoutError", s.Outcome, s.Ran, s.Err)
	})
}

func TestStuckHandlerIsReportedOnceAndKeepsItsJob(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		stuck := make(chan worker.StuckHandler, 10)
		cfg := b.config(t, func(c *worker.Config) { c.Hooks.Stuck = func(h worker.StuckHandler) { stuck <- h } })
		done := make(chan int, 1)

		run(t, b.js, cfg, worker.Policy{Timeout: time.Minute}, func(_ context.Context, job *worker.Job[order]) error {
			natstest.Pass(10 * time.Minute)

			done <- job.Deliveries
			return nil
		})
		b.publish(t, "jobs.1", `{}`)

		begun := time.Now()

		h := <-stuck
		check.That(t, h.ID == "JOBS:1" && h.Ran >= time.Minute && strings.Contains(h.Stacks, "natstest.Pass "),
			"stuck: %+v, want JOBS:1, in Pass", h)

		within(t, "the report", time.Since(begun), 70*time.Second, 75*time.Second) // at most a heartbeat more

		deliveries := <-done
		check.That(t, deliveries == 1 && len(stuck) == 0, "%d deliveries, %d more reports; want 1, 0", deliveries, len(stuck))
	})
}

// TestCopyOfARunningJobIsNotStarted takes a running job from its worker, as a server does
// that heard no heartbeat, so that the server delivers it to the same worker again.
func TestCopyOfARunningJobIsNotStarted(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		beats := make(chan *nats.Msg, 100)

		check.OK(t, check.Err(b.nc.ChanSubscribe("$JS.ACK.>", beats)))

		var attempts []int

		first := make(chan struct{})
		run(t, b.js, b.config(t), worker.Policy{Jitter: -1}, func(_ context.Context, job *worker.Job[order]) error {
			attempts = append(attempts, job.Attempt)
			if len(attempts) == 1 {
				<-first
				return errors.New("again")
			}
			return nil
		})
		b.publish(t, "jobs.1", `{}`)

		for range 3 {
			check.OK(t, b.nc.Publish((<-beats).Subject, []byte("-NAK")))

			natstest.Pass(time.Second)
		}

		close(first)

		wantOutcome(t, <-b.settled, worker.OutcomeRetried)

		s := wantOutcome(t, <-b.settled, worker.OutcomeCompleted)
		check.That(t, s.Deliveries == 5 && s.Attempt == 2, "delivery %d, attempt %d; want 5, 2", s.Deliveries, s.Attempt)
		check.Equal(t, len(attempts), 2, "runs")
	})
}
