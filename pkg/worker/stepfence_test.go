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

// TestZombieRecordsNothing cuts a worker off in mid-step for longer than AckWait, so that
// another works the job, and lets it come back.
func TestZombieRecordsNothing(t *testing.T) {
	for _, before := range []int{0, 1, 2} { // steps that the zombie has recorded
		for when, early := range map[string]bool{"while the other works": true, "when the other has completed": false} {
			runBubble(t, fmt.Sprintf("after %d steps, back %s", before, when), func(t *testing.T, b *bundle) { zombie(t, b, before, early) })
		}
	}
}

func zombie(t *testing.T, b *bundle, before int, early bool) {
	t.Helper()

	p, cut := natstest.Proxied(t, b.srv)
	l := newStepRecorder()
	back, finish, frozen, taken := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	caught, cause := make(chan error, 1), make(chan error, 1)

	recorded := func(ctx context.Context, job *worker.Job[order]) {
		for i := range before {
			check.OK(t, check.Err(l.run(ctx, job, fmt.Sprint(i))))
		}
	}

	cfg, outcomes := b.reporting(t)
	run(t, cut, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
		recorded(ctx, job)
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
		recorded(ctx, job)

		if before == 0 { // it has to fence off an attempt that it does not know
			check.OK(t, check.Err(l.run(ctx, job, "first")))
		}

		close(taken)
		<-finish

		got, err := l.run(ctx, job, "last")
		check.That(t, got != "the zombie's", "the zombie's result was recorded after it was fenced off")
		return err
	})

	<-taken

	if !early {
		close(finish)

		wantOutcome(t, <-completed, worker.OutcomeCompleted)

		natstest.Pass(10 * time.Minute)
	}

	p.Heal()
	natstest.Pass(time.Second)
	close(back)

	err := <-caught
	fenced, ok := errors.AsType[*step.FencedError](err)
	check.That(t, ok && errors.Is(err, step.ErrFenced) && fenced.Deliveries == 2, "the zombie's step: %v, want a FencedError of delivery 2", err)

	check.ErrorIs(t, <-cause, step.ErrFenced)

	check.Equal(t, (<-outcomes).Outcome, worker.OutcomeFenced, "it was")

	if early {
		check.Equal(t, b.storedMessages(t), 1, "jobs left while the successor works")

		close(finish)

		check.Equal(t, wantOutcome(t, <-completed, worker.OutcomeCompleted).Attempt, 2, "attempt of the successor")
	}

	natstest.Pass(time.Minute)

	left := b.storedMessages(t)
	check.That(t, left == 0 && len(completed) == 0, "%d jobs left, %d more attempts", left, len(completed))

	l.check(t)

	for key, n := range l.runs {
		check.Equal(t, n, 1, fmt.Sprintf("%s runs", key))
	}
}
