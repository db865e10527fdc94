package natsotel_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
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
	for _, err := range []error{nil, errors.New("no more")} {
		_, sending = b.Send(t.Context(), "MANY", nats.Header{})
		sending.EndSends(100, err)
	}
	spans := b.spans.Ended()
	if first := spans[0]; first.Name() != "send JOBS" || first.SpanKind() != trace.SpanKindProducer || first.Status().Code != codes.Unset {
		t.Errorf("got %q %s %v", first.Name(), first.SpanKind(), first.Status())
	}
	if carried := trace.SpanContextFromContext(b.Extract(t.Context(), header)); carried.SpanID() != spans[0].SpanContext().SpanID() {
		t.Errorf("the message carries %s, want that of its span", carried.SpanID())
	}
	status := spans[1].Status()
	check.That(t, status.Code == codes.Error && status.Description == "no", "the span of the failed operation is %v", status)
	for stream, sent := range map[string]int64{"JOBS": 1, "MANY": 200} {
		labels := []attribute.KeyValue{
			attribute.String("messaging.system", "nats"), attribute.String("messaging.operation.name", "send"),
			attribute.String("messaging.destination.name", stream),
		}
		failed := slices.Concat(labels, []attribute.KeyValue{attribute.String("error.type", "error")})
		for _, c := range []struct {
			name   string
			labels []attribute.KeyValue
			want   int64
		}{
			{"messaging.client.sent.messages", labels, sent},
			{"messaging.client.sent.messages", failed, 1},
			{"messaging.client.operation.duration", labels, 1},
			{"messaging.client.operation.duration", failed, 1},
		} {
			check.Equal(t, b.value(t, c.name, c.labels...), c.want, fmt.Sprintf("%s %v", c.name, c.labels))
		}
	}
}

// A request that is answered has a span below that of the requester, and counts by its status: one that is refused for a mistake of its
// own has not failed.
func TestAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	header, requester := published(t, b)
	method := []attribute.KeyValue{attribute.String("rpc.system.name", "nats"), attribute.String("rpc.method", "shop.v1.sell")}
	for i, c := range []struct {
		status int
		err    error
		code   codes.Code
		labels []attribute.KeyValue
	}{
		{0, nil, codes.Unset, nil},
		{404, errors.New("no such thing"), codes.Unset, []attribute.KeyValue{attribute.String("rpc.response.status_code", "404")}},
		{503, errors.New("no store"), codes.Error, []attribute.KeyValue{
			attribute.String("rpc.response.status_code", "503"), attribute.String("error.type", "503"),
		}},
	} {
		_, answering := b.Answer(t.Context(), "shop.v1.sell", header)
		answering.EndAnswer(c.status, c.err)
		span := b.spans.Ended()[1+i] // behind that of the requester
		if span.Name() != "shop.v1.sell" || span.SpanKind() != trace.SpanKindServer || span.Parent().SpanID() != requester.SpanID() ||
			span.Status().Code != c.code {
			t.Errorf("%d: %q %s below %s: %v", c.status, span.Name(), span.SpanKind(), span.Parent().SpanID(), span.Status())
		}
		want, got := attribute.NewSet(append(c.labels, method...)...), attribute.NewSet(span.Attributes()...)
		check.That(t, got.Equals(&want), "%d: the span has %v, want %v", c.status, span.Attributes(), want.ToSlice())
		check.Equal(t, b.value(t, "rpc.server.call.duration", append(c.labels, method...)...), 1,
			fmt.Sprintf("%d requests are counted", c.status))
	}
}

// A call of a remote service has a span that is the parent of the spans in it, and counts by its outcome.
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
		got := b.value(t, "remote.call.duration", attribute.String("remote", "mail"), attribute.String("outcome", outcome))
		check.That(t, got == 1, "%d calls with the outcome %s, want 1", got, outcome)
	}
}

// A call apart begins a trace, which links to the cause.
func TestCallApart(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	ctx, cause := b.provider.Tracer("test").Start(t.Context(), "plan")
	defer cause.End()
	_, call := b.CallApart(ctx, "inbox")
	call.End(natsotel.OutcomeOK, nil)
	of, from := b.spans.Ended()[0], cause.SpanContext()
	check.That(t, !of.Parent().IsValid() && of.SpanContext().TraceID() != from.TraceID(), "the parent is %v", of.Parent())
	check.That(t, len(of.Links()) == 1 && of.Links()[0].SpanContext.SpanID() == from.SpanID(), "the links are %v", of.Links())
	check.Equal(t, b.value(t, "remote.call.duration", attribute.String("remote", "inbox"), attribute.String("outcome", "ok")), 1, "calls")
}

// Parts that were given no telemetry use it all the same.
func TestNoTelemetry(t *testing.T) {
	t.Parallel()
	var none *natsotel.Telemetry
	header := nats.Header{}
	_, sending := none.Send(t.Context(), "JOBS", header)
	sending.EndSend(nil)
	_, sending = none.Send(t.Context(), "JOBS", header)
	sending.EndSends(2, nil)
	_, answering := none.Answer(t.Context(), "shop.v1.sell", header)
	answering.EndAnswer(0, nil)
	_, call := none.Call(t.Context(), "mail")
	call.End("timeout", nil)
	_, call = none.CallApart(t.Context(), "mail")
	call.End("timeout", nil)
	check.That(t, len(header) == 0, "the header is %v", header)
}

// How many remote services are held is asked for whenever the metrics are read, until that is stopped.
func TestObserveHeld(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	held := int64(2)
	stop := check.Must(b.ObserveHeld(func(tell func(string, int)) { tell("mail", int(held)) }))(t)
	for range 2 {
		check.Equal(t, b.value(t, "remote.held", attribute.String("remote", "mail")), held, "are held")
		held = 0
	}
	check.OK(t, stop())
	held = 5
	check.Equal(t, b.value(t, "remote.held", attribute.String("remote", "mail")), 0, "are held after the end")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is telemetry that a test can look into.
type bundle struct {
	*natsotel.Telemetry

	provider *sdktrace.TracerProvider
	reader   *sdkmetric.ManualReader
	spans    *tracetest.SpanRecorder
}

func setup(t *testing.T, mutate func(*natsotel.Config)) *bundle {
	t.Helper()
	b := &bundle{reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	b.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans))
	cfg := natsotel.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader)),
		Propagator:    propagation.TraceContext{}, TracerProvider: b.provider,
	}
	if mutate != nil {
		mutate(&cfg)
	}
	var err error
	if b.Telemetry, err = natsotel.New(cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

// value returns the present value of a metric for the given labels: a sum, the last value, or how many values a histogram
// recorded.
func (b *bundle) value(t *testing.T, name string, labels ...attribute.KeyValue) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	check.OK(t, b.reader.Collect(t.Context(), &all))
	want := attribute.NewSet(slices.Clone(labels)...) // it sorts its arguments
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				return at(m.Data, want)
			}
		}
	}
	return 0
}

func at(data metricdata.Aggregation, want attribute.Set) int64 {
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			if p.Attributes.Equals(&want) {
				return p.Value
			}
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			if p.Attributes.Equals(&want) {
				return p.Value
			}
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			if p.Attributes.Equals(&want) {
				return int64(p.Count)
			}
		}
	}
	return 0
}
