package natsotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// lockMetrics are the instruments of locks and flights.
type lockMetrics struct {
	events     metric.Int64Counter
	hold, wait metric.Float64Histogram
}

func newLockMetrics(m *maker) lockMetrics {
	return lockMetrics{
		events: m.counter("kvlock.events", "{event}", "What happened to keys, by kind."),
		hold:   m.histogram("kvlock.hold.duration", "How long claims were held."),
		wait:   m.histogram("kvlock.wait.duration", "How long calls waited for others, by how it ended."),
	}
}

// Observe returns a function for Config.Observe of a Flight on a bucket. It counts events, and adds them to the span of
// ctx.
func (t *Telemetry) Observe(bucket string) func(context.Context, flight.Event) {
	in := attribute.String("bucket", bucket)
	return func(ctx context.Context, e flight.Event) {
		kind := attribute.String("kind", string(e.Kind))
		t.locks.events.Add(ctx, 1, metric.WithAttributes(in, kind))
		switch e.Kind {
		case flight.EventReleased:
			t.locks.hold.Record(ctx, e.Elapsed.Seconds(), metric.WithAttributes(in))
		case flight.EventCoalesced, flight.EventWaitTimeout, flight.EventTakeOver:
			t.locks.wait.Record(ctx, e.Elapsed.Seconds(), metric.WithAttributes(in, kind))
		default: // took no time of its own
		}
		annotate(trace.SpanFromContext(ctx), in, e)
	}
}

// ObserveLocks is Observe for LockerConfig.Observe of a Locker on a bucket.
func (t *Telemetry) ObserveLocks(bucket string) func(context.Context, kvlock.Event) {
	observe := t.Observe(bucket)
	return func(ctx context.Context, e kvlock.Event) {
		observe(ctx, flight.Event{
			Kind: flight.EventKind(e.Kind), Key: e.Name, Claim: e.Lease, Owner: e.Holder, Elapsed: e.Elapsed, Err: e.Err,
		})
	}
}

// annotate adds an event to a span that is recorded.
func annotate(span trace.Span, in attribute.KeyValue, e flight.Event) {
	if !span.IsRecording() {
		return
	}
	attributes := []attribute.KeyValue{
		in, attribute.String("key", e.Key), attribute.String("claim", e.Claim), attribute.String("owner", e.Owner),
		attribute.Int("attempt", e.Attempt), attribute.Float64("elapsed", e.Elapsed.Seconds()),
	}
	if e.Err != nil {
		attributes = append(attributes, attribute.String("error", e.Err.Error()))
	}
	span.AddEvent("kvlock "+string(e.Kind), trace.WithAttributes(attributes...))
	if e.Kind == flight.EventLost {
		span.SetStatus(codes.Error, "claim lost")
	}
}
