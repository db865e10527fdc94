package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestIdleWorkerStartsEveryPriorityAtOnce publishes a job of each priority to a worker that
// has been idle.
func TestIdleWorkerStartsEveryPriorityAtOnce(t *testing.T) {
	for _, slots := range []int{1, 100} {
		bubble(t, func(t *testing.T, b *bundle) {
			started := make(chan time.Time, 1)
			ready := make(chan bool, 1)
			cfg := b.config(t, func(c *worker.Config) { c.Concurrency, c.Hooks.Ready = slots, func(is bool, _ error) { ready <- is } })
			runClasses(t, b.js, cfg, func(context.Context, string, *worker.Job[order]) error {
				started <- time.Now()
				return nil
			}, threeClasses...)
			<-ready

			for _, idle := range []time.Duration{time.Millisecond, 999 * time.Millisecond, time.Second, 2 * time.Minute} {
				for _, class := range classNames {
					natstest.Pass(idle)

					published := time.Now()
					b.publishClass(t, class, 1)

					within(t, "the start of a "+class+" job", (<-started).Sub(published), 0, time.Millisecond)
				}
			}
		})
	}
}

// TestJobWithoutASlotIsHandedBack has one slot, which is taken when a job of another
// priority is delivered: a second worker gets it within half a second, as its first attempt.
func TestJobWithoutASlotIsHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		started := make(chan string, 10)
		leave := make(chan struct{})
		cfg := b.config(t, func(c *worker.Config) { c.Concurrency = 1 })
		runClasses(t, b.js, cfg, func(_ context.Context, class string, _ *worker.Job[order]) error {
			started <- class

			<-leave
			return nil
		}, threeClasses...)
		<-b.ready
		natstest.Pass(100 * time.Millisecond) // requests of all priorities are at the server

		b.publishClass(t, "low", 1)
		<-started
		b.publishClass(t, "high", 1)
		natstest.Pass(time.Millisecond)

		published := time.Now()

		check.Contains(t, wantOutcome(t, <-b.settled, worker.OutcomeHandedBack).Subject, "jobs.high.")

		elsewhere := make(chan *worker.Job[order], 1)
		_, other := natstest.Connect(t, b.srv)
		runClasses(t, other, b.config(t), func(_ context.Context, _ string, job *worker.Job[order]) error {
			elsewhere <- job
			return nil
		}, threeClasses...)

		job := <-elsewhere
		within(t, "the start elsewhere", time.Since(published), 0, 500*time.Millisecond)

		check.That(t, job.Attempt == 1 && job.Deliveries == 2 && len(started) == 0,
			"attempt %d, delivery %d, %d more starts; want 1, 2, 0", job.Attempt, job.Deliveries, len(started))

		close(leave)
	})
}

// TestStopWithPrioritiesLosesNoJobAndNoAttempt stops workers of few slots again and again,
// while jobs of all priorities run, wait for a slot and are on their way.
func TestStopWithPrioritiesLosesNoJobAndNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		const n = 120

		var effects, attempts counter

		for _, class := range classNames {
			b.publishClass(t, class, n)
		}

		for round := 0; b.storedMessages(t) > 0; round++ {
			some := make(chan struct{}, 10*n)
			cfg := b.config(t, func(c *worker.Config) { c.Concurrency, c.SoftStop = 2+round%7, -1 })
			r := runClasses(t, b.js, cfg, func(ctx context.Context, _ string, job *worker.Job[order]) error {
				defer func() { some <- struct{}{} }()

				attempts.add(fmt.Sprint(job.Attempt))

				if job.Args.N%40 == 0 && job.Deliveries < 3 {
					<-ctx.Done()
					return ctx.Err()
				}

				effects.add(job.ID)
				return nil
			}, threeClasses...)

			for range max(1, min(b.storedMessages(t)/4, 100)) { // a round that waits for nothing stops its workers before they run
				select {
				case <-some:
				case <-time.After(20 * time.Millisecond): // paces the rounds; nothing is decided by it
				}
			}

			check.OK(t, r.wait())
		}

		effects.once(t, 3*n)
		check.That(t, len(attempts.of) == 1, "attempts seen %v; want first ones", attempts.of)
		check.Equal(t, len(b.deadLetters(t)), 0, "dead letters")
	})
}
