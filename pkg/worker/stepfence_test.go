package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// TestZombieRecordsNothing cuts a worker off in mid-step for longer than AckWait, so that
// another works the job, and lets it come back.
func TestZombieRecordsNothing(t *testing.T) {
	for _, before := range []int{0, 1, 2} { // steps that the zombie has recorded
		for _, when := range []string{"while the other works", "when the other has completed"} {
			natstest.RunBubble(t, fmt.Sprintf("after %d steps, back %s", before, when), func(t *testing.T, srv *natsrun.Server) { zombie(t, srv, before, when == "while the other works") })
		}
	}
}

func zombie(t *testing.T, srv *natsrun.Server, before int, early bool) {
	t.Helper()

	b := setup(t, srv)
	p, cut := natstest.Proxied(t, srv)
	l := newStepRecorder()

	var (
		back   = make(chan struct{})
		caught = make(chan error, 1)
		cause  = make(chan error, 1)
		finish = make(chan struct{})
		frozen = make(chan struct{})
		taken  = make(chan struct{})
	)

	cfg, outcomes := b.reporting(t)
	run(t, cut, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
		for i := range before {
			if _, err := l.run(ctx, job, fmt.Sprint(i)); err != nil {
				return err
			}
		}

		_, err := step.Run(ctx, job, "last", func(context.Context) (string, error) {
			close(frozen)
			<-back
			return "the zombie's", nil
		})
		caught <- err

		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil // which would complete the job
	})
	b.publish(t, "jobs.1", `{}`)
	<-frozen
	p.Partition()

	cfg, completed := b.reporting(t)
	run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
		for i := range before {
			if _, err := l.run(ctx, job, fmt.Sprint(i)); err != nil {
				return err
			}
		}

		if before == 0 { // it has to fence off an attempt that it does not know
			if _, err := l.run(ctx, job, "first"); err != nil {
				return err
			}
		}

		close(taken)
		<-finish

		got, err := l.run(ctx, job, "last")
		check.That(t, got != "the zombie's", "the zombie's result was recorded after it was fenced off")
		return err
	})

	<-taken

	if early {
		p.Heal()
		natstest.Pass(time.Second)
		close(back)
	} else {
		close(finish)

		ends(t, <-completed, worker.OutcomeCompleted)

		natstest.Pass(10 * time.Minute)
		p.Heal()
		natstest.Pass(time.Second)
		close(back)
	}

	err := <-caught
	if fenced, ok := errors.AsType[*step.FencedError](err); !ok || !errors.Is(err, step.ErrFenced) || fenced.Deliveries != 2 {
		t.Errorf("the zombie's step: %v, want a FencedError of delivery 2", err)
	}

	check.ErrorIs(t, <-cause, step.ErrFenced)

	check.Equal(t, (<-outcomes).Outcome, worker.OutcomeFenced, "it was")

	if early {
		check.Equal(t, b.left(t), 1, "jobs left while the successor works")

		close(finish)

		s := <-completed
		check.That(t, s.Outcome == worker.OutcomeCompleted && s.Attempt == 2, "the successor: %s in attempt %d, %v", s.Outcome, s.Attempt, s.Err)
	}

	natstest.Pass(time.Minute)

	left := b.left(t)
	check.That(t, left == 0 && len(completed) == 0, "%d jobs left, %d more attempts", left, len(completed))

	l.check(t)

	for key, n := range l.runs {
		check.Equal(t, n, 1, fmt.Sprintf("%s runs", key))
	}
}

// TestZombieThatGetsTheJobBackGivesItUpAtOnce cuts a worker off. A second worker takes its job over and dies. The server gives the job
// to the first worker again, whose attempt is still running.
func TestZombieThatGetsTheJobBackGivesItUpAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		p, cut := natstest.Proxied(t, b.srv)
		nc, js := natstest.Connect(t, b.srv)
		l := newStepRecorder()
		frozen, back := make(chan struct{}), make(chan struct{})
		done := make(chan worker.Settlement, 10)
		begun := make(chan time.Time, 10)

		run(t, cut, b.config(t, func(c *worker.Config) { c.Hooks.Settled = func(s worker.Settlement) { done <- s } }), worker.Policy{},
			func(ctx context.Context, job *worker.Job[order]) error {
				begun <- time.Now()

				if _, err := l.run(ctx, job, "a"); err != nil {
					return err
				}

				if job.Deliveries == 1 {
					close(frozen)
					<-back
				}

				_, err := l.run(ctx, job, "b")
				return err
			})
		b.publish(t, "jobs.1", `{}`)
		<-frozen
		<-begun
		p.Partition()

		taken := make(chan struct{})
		second := run(t, js, b.config(t, stopAtOnce), worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
			if _, err := l.run(ctx, job, "a"); err != nil {
				return err
			}

			close(taken)
			<-ctx.Done()
			return ctx.Err()
		})
		<-taken
		nc.Close()

		check.ErrorIs(t, second.wait(), nats.ErrConnectionClosed)

		natstest.Pass(10 * time.Second) // more than AckWait
		p.Heal()
		natstest.Pass(5 * time.Second) // the server gives the job to the first worker again
		resumed := time.Now()
		close(back)

		for range 2 { // each told by its own goroutine, in either order
			s, want := <-done, worker.OutcomeCompleted
			if s.Deliveries == 1 {
				want = worker.OutcomeFenced
			}

			check.That(t, s.Outcome == want, "delivery %d: %s, %v; want %s", s.Deliveries, s.Outcome, s.Err, want)
		}

		waited := (<-begun).Sub(resumed)
		check.That(t, waited <= 2*time.Second, "the job began again after %s, want at once and not after AckWait", waited)

		l.check(t)
	})
}
