package natsotel_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/expediter-io/expediter/pkg/natsotel"
)

// A message that is sent has a span, the context of which it carries, and counts as the semantic conventions have it.
func TestSend(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	header := nats.Header{}
	_, sending := b.Send(t.Context(), "JOBS", header)
	sending.EndSend(nil)
	_, sending = b.Send(t.Context(), "JOBS", nats.Header{})
	sending.EndSend(errors.New("no"))
	spans := b.spans.Ended()
	if first := spans[0]; first.Name() != "send JOBS" || first.SpanKind() != trace.SpanKindProducer || first.Status().Code != codes.Unset {
		t.Errorf("got %q %s %v", first.Name(), first.SpanKind(), first.Status())
	}
	if carried := trace.SpanContextFromContext(b.Extract(t.Context(), header)); carried.SpanID() != spans[0].SpanContext().SpanID() {
		t.Errorf("the message carries %s, want that of its span", carried.SpanID())
	}
	if status := spans[1].Status(); status.Code != codes.Error || status.Description != "no" {
		t.Errorf("the span of what failed is %v", status)
	}
	labels := []attribute.KeyValue{
		attribute.String("messaging.system", "nats"), attribute.String("messaging.operation.name", "send"),
		attribute.String("messaging.destination.name", "JOBS"),
	}
	for _, name := range []string{"messaging.client.sent.messages", "messaging.client.operation.duration"} {
		for _, more := range [][]attribute.KeyValue{nil, {attribute.String("error.type", "error")}} {
			if got := b.value(t, name, append(labels[:3:3], more...)...); got != 1 {
				t.Errorf("%s %v is %d, want 1", name, more, got)
			}
		}
	}
}

// A call of a far side has a span that is the parent of what is done in it, and counts by its outcome.
func TestCall(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	ctx, call := b.Call(t.Context(), "mail")
	_, inner := b.provider.Tracer("test").Start(ctx, "dial")
	inner.End()
	call.End("timeout", errors.New("late"))
	_, call = b.Call(t.Context(), "mail")
	call.End(natsotel.OutcomeOK, nil)
	spans := b.spans.Ended()
	if of := spans[1]; of.Name() != "call mail" || of.SpanKind() != trace.SpanKindClient || spans[0].Parent().SpanID() != of.SpanContext().SpanID() {
		t.Errorf("got %q %s", of.Name(), of.SpanKind())
	}
	for _, outcome := range []string{"timeout", "ok"} {
		if got := b.value(t, "far_side.call.duration", attribute.String("side", "mail"), attribute.String("outcome", outcome)); got != 1 {
			t.Errorf("%d calls with the outcome %s, want 1", got, outcome)
		}
	}
}

// Parts that were given no telemetry use it all the same.
func TestNoTelemetry(t *testing.T) {
	t.Parallel()
	var none *natsotel.Telemetry
	header := nats.Header{}
	_, sending := none.Send(t.Context(), "JOBS", header)
	sending.EndSend(nil)
	_, call := none.Call(t.Context(), "mail")
	call.End("timeout", nil)
	if len(header) != 0 {
		t.Errorf("the header is %v", header)
	}
}

// How many far sides are held is asked for whenever the metrics are read, until that is stopped.
func TestObserveHeld(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	held := int64(2)
	stop, err := b.ObserveHeld(func(tell func(string, int)) { tell("mail", int(held)) })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := b.value(t, "far_side.held", attribute.String("side", "mail")); got != held {
			t.Errorf("%d are held, want %d", got, held)
		}
		held = 0
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	held = 5
	if got := b.value(t, "far_side.held", attribute.String("side", "mail")); got != 0 {
		t.Errorf("%d are held after the end", got)
	}
}

// What follows a message later links to it, and a message that carries nothing changes nothing.
func TestLink(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	header, creator := published(t, b)
	ctx, span := b.provider.Tracer("test").Start(t.Context(), "follow")
	b.Link(ctx, nats.Header{})
	b.Link(ctx, nil)
	b.Link(ctx, header)
	b.Link(t.Context(), header) // no span
	span.End()
	if links := b.spans.Ended()[1].Links(); len(links) != 1 || links[0].SpanContext.SpanID() != creator.SpanID() {
		t.Errorf("links are %v, want one to the publisher", links)
	}
	if got := trace.SpanContextFromContext(b.Extract(t.Context(), header)); got.SpanID() != creator.SpanID() {
		t.Errorf("extracted %s, want %s", got.SpanID(), creator.SpanID())
	}
}
