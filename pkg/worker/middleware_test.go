package worker

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
)

// The first middleware is the outermost. Each sees the job, and the error that the inner one returns.
func TestMiddlewareOrder(t *testing.T) {
	t.Parallel()

	type key struct{}

	var calls []string

	named := func(name string) Middleware {
		return func(ctx context.Context, info Info, header nats.Header, next func(context.Context) error) error {
			calls = append(calls, name+" "+info.ID+" "+header.Get("H"))
			err := next(context.WithValue(ctx, key{}, name))
			calls = append(calls, name+" got "+err.Error())
			return errors.Join(err, errors.New(name))
		}
	}
	work := func(ctx context.Context) error {
		calls = append(calls, "work in "+ctx.Value(key{}).(string)) //nolint:forcetypeassert // set above
		return errors.New("no")
	}

	err := wrap([]Middleware{named("a"), named("b")}, Info{ID: "j"}, nats.Header{"H": {"h"}}, work)(t.Context())

	want := []string{"a j h", "b j h", "work in b", "b got no", "a got no\nb"}
	if !slices.Equal(calls, want) || err.Error() != "no\nb\na" {
		t.Errorf("calls %q, error %q", calls, err)
	}
}

// A middleware may decide without the handler, and none costs nothing.
func TestMiddlewareDecides(t *testing.T) {
	t.Parallel()

	refuse := func(context.Context, Info, nats.Header, func(context.Context) error) error { return Snooze(0) }
	work := func(context.Context) error { panic("called") }

	if _, ok := errors.AsType[*SnoozeError](wrap([]Middleware{refuse}, Info{}, nil, work)(t.Context())); !ok {
		t.Error("the middleware's error was lost")
	}
}
