package natsotel_test

import (
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// Events of keys are counted by kind, timed where they took time, and added to the caller's span.
func TestObserve(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	observe := b.Observe("menus")
	ctx, span := b.provider.Tracer("test").Start(t.Context(), "caller")
	observe(ctx, flight.Event{Kind: flight.EventWaiting, Key: "k", Claim: "c1"})
	observe(ctx, flight.Event{Kind: flight.EventCoalesced, Key: "k", Claim: "c1", Elapsed: time.Second})
	observe(ctx, flight.Event{Kind: flight.EventReleased, Key: "k", Elapsed: time.Second})
	observe(ctx, flight.Event{Kind: flight.EventLost, Key: "k", Err: errors.New("gone")})
	span.End()
	b.ObserveLocks("locks")(t.Context(), kvlock.Event{Kind: kvlock.EventReleased, Name: "l", Elapsed: time.Second})
	observe(t.Context(), flight.Event{Kind: flight.EventWaiting, Key: "other"}) // outside of any span

	in := attribute.String("bucket", "menus")
	of := func(kind flight.EventKind) attribute.KeyValue { return attribute.String("kind", string(kind)) }
	if got := b.value(t, "kvlock.events", in, of(flight.EventWaiting)); got != 2 {
		t.Errorf("%d waits, want 2", got)
	}
	if got := b.value(t, "kvlock.wait.duration", in, of(flight.EventCoalesced)); got != 1 {
		t.Errorf("%d waits were timed, want 1", got)
	}
	if got := b.value(t, "kvlock.hold.duration", in); got != 1 {
		t.Errorf("%d claims were timed, want 1", got)
	}
	if got := b.value(t, "kvlock.hold.duration", attribute.String("bucket", "locks")); got != 1 {
		t.Errorf("%d leases were timed, want 1", got)
	}
	ended := b.spans.Ended()[0]
	if len(ended.Events()) != 4 || ended.Events()[1].Name != "kvlock coalesced" || ended.Status().Code != codes.Error {
		t.Errorf("events %v, status %v", ended.Events(), ended.Status())
	}
}
