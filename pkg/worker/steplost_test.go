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
			t.Run(fmt.Sprint(how, " ", n), func(t *testing.T) {
				bubble(t, func(t *testing.T, b *bundle) {
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
			waited := time.Since(begun)
			check.That(t, err == nil || waited >= 30*time.Second && waited <= 33*time.Second, "it tried for %s, want SettleTimeout of 30s", waited)

			begun = time.Now()

			if _, again := l.run(ctx, job, "third"); err != nil && (!errors.Is(again, step.ErrNotRecorded) || time.Since(begun) > time.Second) {
				t.Errorf("a step after one whose outcome is unknown: %v after %s, want ErrNotRecorded at once", again, time.Since(begun))
			}

			p.Filter(nil)
			return err
		})
		b.publish(t, "jobs.1", `{}`)

		if s := <-b.settled; s.Outcome != worker.OutcomeRetried || !errors.Is(s.Err, step.ErrNotRecorded) {
			t.Errorf("first: %s, %v; want retried, ErrNotRecorded", s.Outcome, s.Err)
		}

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

		s := <-b.settled
		check.That(t, s.Outcome == worker.OutcomeCompleted && ran == 2, "%s, %v; the step ran %d times, want 2", s.Outcome, s.Err, ran)
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

		done := make(chan worker.Settlement, 10)
		l.slow = nil

		run(t, b.js, b.config(t, func(c *worker.Config) { c.Hooks.Settled = func(s worker.Settlement) { done <- s } }), worker.Policy{},
			func(ctx context.Context, job *worker.Job[order]) error { return check.Err(l.run(ctx, job, "a")) })

		if s := <-done; s.Outcome != worker.OutcomeCompleted || s.Attempt != 1 || l.runs["JOBS:1/a"] != 1 {
			t.Errorf("%s in attempt %d, %v; runs %v", s.Outcome, s.Attempt, s.Err, l.runs)
		}

		l.check(t)
	})
}
