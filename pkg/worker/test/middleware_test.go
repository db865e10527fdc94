package test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// Middleware runs around every attempt: the handler sees its context, and its own error or
// panic is the attempt's.
func TestMiddleware(t *testing.T) {
	t.Parallel()

	type key struct{}

	b := setup(t, nil)
	settled := make(chan worker.Settlement, 3)
	around := func(ctx context.Context, info worker.Info, header nats.Header, next func(context.Context) error) error {
		switch info.Attempt {
		case 1:
			return errors.New("refused by the middleware")
		case 2:
			panic("in the middleware")
		}
		return next(context.WithValue(ctx, key{}, info.Pattern+" "+header.Get("Who")))
	}
	cfg := b.config(t, func(c *worker.Config) {
		c.Hooks.Settled = func(s worker.Settlement) { settled <- s }
		c.Middleware = []worker.Middleware{around}
	})
	seen := make(chan string, 1)

	run(t, b.js, cfg, worker.Policy{Backoff: worker.Exponential(1, 1)}, func(ctx context.Context, _ *worker.Job[order]) error {
		who, ok := ctx.Value(key{}).(string)
		check.That(t, ok, "the handler does not see the middleware's context")

		seen <- who
		return nil
	})

	msg := nats.NewMsg("jobs.soup")
	msg.Data = []byte(`{}`)
	msg.Header.Set("Who", "anna")

	check.OK(t, check.Err(b.js.PublishMsg(t.Context(), msg)))

	first := receive(t, settled, "the first attempt")
	check.That(t, first.Outcome == worker.OutcomeRetried, "the first attempt was %s: %v", first.Outcome, first.Err)

	second := receive(t, settled, "the second attempt")
	_, ok := errors.AsType[*worker.PanicError](second.Err)
	check.That(t, ok, "the second attempt ended with %v, want a panic", second.Err)

	check.Same(t, "the handler saw", receive(t, seen, "the handler"), "jobs.> anna")

	if third := receive(t, settled, "the third attempt"); third.Outcome != worker.OutcomeCompleted || third.Pattern != "jobs.>" {
		t.Errorf("the third attempt was %s of %q: %v", third.Outcome, third.Pattern, third.Err)
	}
}
