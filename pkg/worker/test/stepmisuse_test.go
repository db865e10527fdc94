package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

func TestResultOverTheLimitIsReturnedWithAnError(t *testing.T) {
	t.Parallel()

	m := step.NewMemory()
	large := make([]byte, step.MaxResult+1)
	job := &worker.Job[order]{}

	got, err := step.Run(m.Attempt(t.Context()), job, "large", func(context.Context) ([]byte, error) { return large, nil })
	if !errors.Is(err, step.ErrTooLarge) || len(got) != len(large) {
		t.Errorf("%d bytes, %v; want all of it and ErrTooLarge", len(got), err)
	}

	err = step.Do(m.Attempt(t.Context()), job, "large", func(context.Context) error { return io.EOF })
	check.Is(t, err, io.EOF)
}

func TestMisuseOfStepsIsRefused(t *testing.T) {
	t.Parallel()

	job := &worker.Job[order]{}
	nothing := func(context.Context) error { return nil }

	check.Is(t, step.Do(t.Context(), job, "a", nothing), step.ErrNoJournal)

	ctx := step.NewMemory().Attempt(t.Context())
	check.Is(t, step.Do(ctx, job, "a", nothing), nil)

	for _, name := range []string{"a", "", "tab\t", "\xff", strings.Repeat("x", 101)} {
		if err := step.Do(ctx, job, name, nothing); !errors.Is(err, step.ErrMisuse) {
			t.Errorf("%q: %v, want ErrMisuse", name, err)
		}
	}

	for i := 1; i < step.MaxSteps; i++ {
		check.OK(t, step.Do(ctx, job, fmt.Sprint(i), nothing))
	}

	check.Is(t, step.Do(ctx, job, "last", nothing), step.ErrMisuse)
}

func TestFailedStepMayRunAgainInTheSameAttempt(t *testing.T) {
	t.Parallel()

	ctx := step.NewMemory().Attempt(t.Context())
	job := &worker.Job[order]{}
	panicked := func() (value any) {
		defer func() { value = recover() }()
		return step.Do(ctx, job, "a", func(context.Context) error { panic("burnt") })
	}

	if value := panicked(); value != "burnt" {
		t.Errorf("%v came out, want the panic", value)
	}

	check.Is(t, step.Do(ctx, job, "a", func(context.Context) error { return io.EOF }), io.EOF)

	check.Is(t, step.Do(ctx, job, "a", func(context.Context) error { return nil }), nil)
}

func TestStepAfterTheHandlerHasReturnedIsRefused(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	late := make(chan error, 1)
	returned := make(chan struct{})

	attempts(t, b, func(ctx context.Context, job *worker.Job[order]) error {
		go func() {
			<-returned
			late <- step.Do(context.WithoutCancel(ctx), job, "late", func(context.Context) error { return nil })
		}()
		return nil
	})
	close(returned)

	check.Is(t, receive(t, late, "the late step"), step.ErrMisuse)
}

func TestContextOfAnotherJobIsRefused(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	all := attempts(t, b, func(ctx context.Context, job *worker.Job[order]) error {
		other := *job
		other.Sequence++
		return worker.Cancel(step.Do(ctx, &other, "a", func(context.Context) error { return nil }))
	})

	check.Is(t, all[0].Err, step.ErrMisuse)
}

func TestStepDoesNotStartWhenItsContextHasEnded(t *testing.T) {
	t.Parallel()

	why := errors.New("the far side has gone")
	ctx, cancel := context.WithCancelCause(step.NewMemory().Attempt(t.Context()))
	cancel(why)

	for i := range 50 { // a choice between two that are ready is by chance
		err := step.Do(ctx, &worker.Job[order]{}, fmt.Sprint(i), func(context.Context) error { return errors.New("was run") })
		if !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, want the cause and context.Canceled", err)
		}
	}
}

func TestStepOfAnotherTypeIsNotTaken(t *testing.T) {
	t.Parallel()

	m := step.NewMemory()
	job := &worker.Job[order]{}

	check.OK(t, check.Err(step.Run(m.Attempt(t.Context()), job, "count", func(context.Context) (int, error) { return 7, nil })))

	_, err := step.Run(m.Attempt(t.Context()), job, "count", func(context.Context) (string, error) { return "", errors.New("was run") })
	if unreadable, ok := errors.AsType[*step.RecordError](err); !ok || unreadable.Step != "count" {
		t.Errorf("%v, want a RecordError", err)
	}

	raw, err := step.Run(m.Attempt(t.Context()), job, "count", func(context.Context) (json.RawMessage, error) { return nil, errors.New("was run") })
	if string(raw) != "7" || err != nil {
		t.Errorf("%s, %v; want 7", raw, err)
	}
}
