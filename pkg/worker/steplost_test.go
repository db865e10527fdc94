package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

func TestLostAnswersToStepWrites(t *testing.T) {
	for _, how := range []natstest.Fault{natstest.RefusedApplied, natstest.ReplyLost, natstest.WriteLost} {
		for _, n := range []int{1, 3} {
			runBubble(t, fmt.Sprint(how, " ", n), func(t *testing.T, b *bundle) {
				p, js := natstest.Proxied(t, b.srv)
				l := newStepRecorder()
				run(t, js, b.config(t), worker.Policy{Jitter: -1}, func(ctx context.Context, job *worker.Job[order]) error {
					for i := range 3 {
						p.Hit(requests(stepKeys), how, n)

						if _, err := l.run(ctx, job, fmt.Sprint(i)); err != nil {
							return err
						}
					}

					if job.Attempt == 1 {
						return errors.New("again")
					}
					return nil
				})
				b.publish(t, "jobs.1", `{}`)

				wantOutcome(t, <-b.settled, worker.OutcomeRetried)

				wantOutcome(t, <-b.settled, worker.OutcomeCompleted)

				l.check(t)

				for key, n := range l.runs {
					check.Equal(t, n, 1, fmt.Sprintf("%s runs", key))
				}
			})
		}
	}
}

// TestServerAwayInAStep loses all writes for longer than the worker tries.
func TestServerAwayInAStep(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		p, js := natstest.Proxied(t, b.srv)
		l := newStepRecorder()
		run(t, js, b.config(t), worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
			if _, err := l.run(ctx, job, "first"); err != nil {
				return err
			}

			if job.Attempt == 1 {
				p.Hit(requests(stepKeys), natstest.WriteLost, 1<<30)
			}

			begun := time.Now()

			_, err := l.run(ctx, job, "second")
			if err != nil {
				within(t, "the tries until SettleTimeout", time.Since(begun), settleTimeout, settleTimeout+3*time.Second)
			}

			begun = time.Now()

			_, again := l.run(ctx, job, "third")
			if err != nil { // the outcome of the one before is unknown
				check.ErrorIs(t, again, step.ErrNotRecorded)
				within(t, "the refusal of a third step", time.Since(begun), 0, time.Second)
			}

			p.Filter(nil)
			return err
		})
		b.publish(t, "jobs.1", `{}`)

		check.ErrorIs(t, wantOutcome(t, <-b.settled, worker.OutcomeRetried).Err, step.ErrNotRecorded)

		wantOutcome(t, <-b.settled, worker.OutcomeCompleted)

		l.check(t)

		check.That(t, l.runs["JOBS:1/first"] == 1 && l.runs["JOBS:1/second"] == 2, "runs: %v", l.runs)
	})
}

// TestStepsOfAJobInARecreatedStream puts a job where another was, in a stream that was
// deleted and made again.
func TestStepsOfAJobInARecreatedStream(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		ran := 0

		run(t, b.js, b.config(t), worker.Policy{MaxAttempts: 2}, func(ctx context.Context, job *worker.Job[order]) error {
			if job.Args.N == 2 && job.Attempt == 1 {
				return errors.New("the journal is not looked at before the second attempt")
			}

			err := step.Do(ctx, job, "a", func(context.Context) error {
				ran++
				return nil
			})
			if err != nil || job.Args.N == 2 {
				return err
			}
			return worker.Discard(errors.New("burnt"))
		})

		b.publish(t, "jobs.1", `{"n":1}`)

		wantOutcome(t, <-b.settled, worker.OutcomeDead)

		b.recreate(t)

		sequence := b.publish(t, "jobs.1", `{"n":2}`)
		check.Require(t, sequence == 1, "the second job is at %d, want 1", sequence)

		<-b.settled

		wantOutcome(t, <-b.settled, worker.OutcomeCompleted)
		check.Equal(t, ran, 2, "runs of the step")
	})
}

// TestStepThatEndsInAShutdownIsRecorded stops a worker in mid-step.
func TestStepThatEndsInAShutdownIsRecorded(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		_, js := natstest.Connect(t, b.srv)
		l := newStepRecorder()
		started := make(chan struct{})
		first := run(t, js, b.config(t, func(c *worker.Config) {
			c.SoftStop = -1
		}), worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
			l.slow = func() {
				close(started)
				<-ctx.Done()
			}

			check.ErrorIs(t, check.Err(l.run(ctx, job, "a")), nil)

			_, err := l.run(ctx, job, "b")
			check.ErrorIs(t, err, worker.ErrShutdown)
			return err
		})
		b.publish(t, "jobs.1", `{}`)
		<-started

		check.ErrorIs(t, first.wait(), nil)

		l.slow = nil
		cfg, done := b.reporting(t)
		run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error { return check.Err(l.run(ctx, job, "a")) })

		check.Equal(t, wantOutcome(t, <-done, worker.OutcomeCompleted).Attempt, 1, "attempt")
		check.Equal(t, l.runs["JOBS:1/a"], 1, "runs of the step")

		l.check(t)
	})
}
