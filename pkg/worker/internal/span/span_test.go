package span_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/worker/internal/span"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachRequestHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := span.New(t.Context(), time.Second)
		defer s.End()

		for range 3 {
			ctx := s.Begin()
			if until, ok := ctx.Deadline(); !ok || time.Until(until) != time.Second {
				t.Errorf("the deadline is %v (%t), want a second from now", until, ok)
			}

			<-time.After(900 * time.Millisecond)
			if err := ctx.Err(); err != nil {
				t.Errorf("ended before its time: %v", err)
			}

			s.Pause()
			<-time.After(time.Hour) // nobody waits
		}

		ctx, began := s.Begin(), time.Now()
		<-ctx.Done()

		if took := time.Since(began); took != time.Second || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %s: %v", took, ctx.Err())
		}

		s.Pause()
		if err := s.Begin().Err(); err != nil {
			t.Errorf("the request after one that took too long: %v", err)
		}
	})
}

// A request that ends as its time does must not end the next.
func TestAnEndAtTheDeadlineDoesNotReachTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := span.New(t.Context(), time.Second)
		defer s.End()

		for range 1000 {
			s.Begin()
			<-time.After(time.Second) // wakes at the instant at which the timer fires
			s.Pause()

			ctx := s.Begin()
			synctest.Wait()
			if err := ctx.Err(); err != nil {
				t.Fatalf("the next request has ended: %v", err)
			}

			s.Pause()
		}
	})
}

func TestEndsWithTheParent(t *testing.T) {
	t.Parallel()

	cause := errors.New("over")
	parent, cancel := context.WithCancelCause(t.Context())

	s := span.New(parent, time.Hour)
	defer s.End()

	ctx := s.Begin()

	cancel(cause)
	<-ctx.Done()

	if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), cause) {
		t.Errorf("ended with %v, %v", ctx.Err(), context.Cause(ctx))
	}

	s.Pause()
	if err := s.Begin().Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("begun after the end of the parent: %v", err)
	}
}
