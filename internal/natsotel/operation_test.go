package natsotel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
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
	carried := trace.SpanContextFromContext(b.Extract(t.Context(), header))
	check.That(t, carried.SpanID() == spans[0].SpanContext().SpanID(), "the message carries %s, want that of its span", carried.SpanID())
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
		check.That(t, span.Name() == "shop.v1.sell" && span.SpanKind() == trace.SpanKindServer && span.Parent().SpanID() == requester.SpanID() &&
			span.Status().Code == c.code,
			"%d: %q %s below %s: %v", c.status, span.Name(), span.SpanKind(), span.Parent().SpanID(), span.Status())
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
	b.Telemetry = check.Must(natsotel.New(cfg))(t)
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

// shop answers requests with the status and in the way that their paths name.
func shop() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "refused" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch r = natsotel.Trace(w, r); r.PathValue("id") {
		case "hints":
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
		case "body":
			_, _ = w.Write([]byte("soup"))
			w.WriteHeader(http.StatusTeapot) // too late
		case "full":
			w.WriteHeader(http.StatusInsufficientStorage)
		case "panic":
			panic(http.ErrAbortHandler)
		}
	})
	return mux
}

// served returns the labels of a request.
func served(method string, status int, route string) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("http.request.method", method), attribute.Int("http.response.status_code", status),
		attribute.String("network.protocol.name", "http"), attribute.String("network.protocol.version", "1.1"),
		attribute.String("server.address", "shop"), attribute.String("url.scheme", "http"),
	}
	if route != "" {
		all = append(all, attribute.String("http.route", route))
	}
	return all
}

// A request has a span below that of the client, and counts by its route and status, whatever path, host, method and version the client
// chose. One that is refused counts, and has no span.
func TestHandler(t *testing.T) {
	t.Parallel()
	const route = "/v1/orders/{id}"
	for _, c := range []struct {
		method, path string
		title        string
		code         codes.Code
		labels       []attribute.KeyValue
	}{
		{"POST", "/v1/orders/7", "POST " + route, codes.Unset, served("POST", 200, route)},
		{"POST", "/v1/orders/body", "POST " + route, codes.Unset, served("POST", 200, route)},
		{"POST", "/v1/orders/hints", "POST " + route, codes.Unset, served("POST", 418, route)},
		{"POST", "/v1/orders/full", "POST " + route, codes.Error, served("POST", 507, route)},
		{"POST", "/v1/orders/panic", "POST " + route, codes.Error, served("POST", 500, route)},
		{"POST", "/v1/orders/refused", "", codes.Unset, served("POST", 401, route)},
		{"POST", "/v2", "", codes.Unset, served("POST", 404, "")},
		{"BREW", "/v1/orders/7", "", codes.Unset, served("_OTHER", 405, "")},
	} {
		b := setup(t, nil)
		header, client := published(t, b)
		r := httptest.NewRequestWithContext(t.Context(), c.method, "http://any.test:12345"+c.path, strings.NewReader("soup"))
		r.ProtoMinor = 7
		b.propagate(header, r.Header)
		func() {
			defer func() {
				check.That(t, (recover() != nil) == strings.HasSuffix(c.path, "panic"), "%s: the panic is not the server's", c.path)
			}()
			b.Handler("shop", nil, shop()).ServeHTTP(httptest.NewRecorder(), r)
		}()
		check.Equal(t, b.value(t, "http.server.request.duration", c.labels...), 1, c.path+" is counted")
		ended := b.spans.Ended()[1:] // behind that of the client
		check.Equal(t, len(ended) == 1, c.title != "", c.path+" has a span")
		if c.title == "" {
			continue
		}
		span := ended[0]
		check.That(t, span.Name() == c.title && span.SpanKind() == trace.SpanKindServer && span.Parent().SpanID() == client.SpanID() &&
			span.Status().Code == c.code,
			"%s: %q %s below %s: %v", c.path, span.Name(), span.SpanKind(), span.Parent().SpanID(), span.Status())
		got := attribute.NewSet(span.Attributes()...)
		for _, want := range append(c.labels, attribute.String("url.path", c.path), attribute.String("network.peer.address", "192.0.2.1")) {
			value, _ := got.Value(want.Key)
			check.Equal(t, value.String(), want.Value.String(), c.path+": "+string(want.Key))
		}
	}
}

// propagate writes the trace context of the headers of a message into those of a request.
func (*bundle) propagate(from map[string][]string, to http.Header) {
	for name, values := range from {
		to.Set(name, values[0])
	}
}

// Requests for quiet paths are not measured. Without a recorder of spans a request is counted, and passes the client's context on. A
// server without telemetry has its handler as it is.
func TestHandlerMeasuresNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t, func(cfg *natsotel.Config) { cfg.TracerProvider = noop.NewTracerProvider() })
	var got trace.SpanContext
	h := b.Handler("shop", map[string]bool{"/livez": true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = trace.SpanContextFromContext(natsotel.Trace(w, r).Context())
	}))
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, path := range []string{"/livez", "/orders"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		r.Header.Set("Traceparent", parent)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	check.Equal(t, got.TraceID().String(), strings.Split(parent, "-")[1], "trace")
	check.Equal(t, b.value(t, "http.server.request.duration", served("GET", 200, "")...), 1, "requests")
	var none *natsotel.Telemetry
	mux := http.NewServeMux()
	check.That(t, none.Handler("shop", nil, mux) == http.Handler(mux), "a nil Telemetry wraps the handler")
}

// A request without traces costs few allocations.
func TestHandlerAllocates(t *testing.T) {
	b := setup(t, func(cfg *natsotel.Config) {
		cfg.TracerProvider = noop.NewTracerProvider()
		cfg.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	})
	h := b.Handler("shop", nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { natsotel.Trace(w, r) }))
	r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/orders", http.NoBody), httptest.NewRecorder()
	got := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) })
	check.That(t, got <= 3, "a request costs %v allocations, want at most 3", got)
}

var (
	mail = worker.Info{
		Attempt: 2, Consumer: "mailer", Deliveries: 1, ID: "j1", Pattern: "jobs.mail.>", Stream: "JOBS", Subject: "jobs.mail.17",
	}
	kind = []attribute.KeyValue{
		attribute.String("stream", "JOBS"), attribute.String("consumer", "mailer"), attribute.String("pattern", "jobs.mail.>"),
	}
)

// published is a header with the trace context of a span, and that span's.
func published(t *testing.T, b *bundle) (nats.Header, trace.SpanContext) {
	t.Helper()
	ctx, span := b.provider.Tracer("test").Start(t.Context(), "publish")
	defer span.End()
	header := nats.Header{}
	b.Inject(ctx, header)
	return header, span.SpanContext()
}

// An attempt is its own span that links to the span of the job's publisher; the handler's spans are below it.
func TestSpanLinksToPublisher(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	header, creator := published(t, b)
	err := b.Middleware(t.Context(), mail, header, func(ctx context.Context) error {
		check.Equal(t, b.value(t, "worker.jobs.running", kind...), 1, "jobs run")
		_, child := b.provider.Tracer("test").Start(ctx, "work")
		child.End()
		return nil
	})
	check.OK(t, err)
	spans := b.spans.Ended() // publish, work, process
	job := spans[2]
	check.That(t, job.Name() == "process jobs.mail.>" && job.SpanKind() == trace.SpanKindConsumer && job.Status().Code == codes.Unset,
		"got %q %s %v", job.Name(), job.SpanKind(), job.Status())
	check.That(t, job.SpanContext().TraceID() != creator.TraceID(), "the job is in the trace of its publisher, and must not be")
	links := job.Links()
	check.That(t, len(links) == 1 && links[0].SpanContext.SpanID() == creator.SpanID(), "links are %v, want one to the publisher", links)
	check.That(t, spans[1].Parent().SpanID() == job.SpanContext().SpanID(), "the handler's span is not below the job's")
	check.Equal(t, b.value(t, "worker.jobs.running", kind...), 0, "jobs run")
}

// Failures show in the span's status, a snooze is none, and a panic is recorded and passes.
func TestSpanStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		work  func() error
		want  codes.Code
		event string
	}{
		{"failure", func() error { return errors.New("no") }, codes.Error, "exception"},
		{"discarded", func() error { return worker.Discard(nil) }, codes.Error, "exception"},
		{"nil", func() error { return (*worker.SnoozeError)(nil) }, codes.Error, "exception"},
		{"snoozed", func() error { return worker.Snooze(time.Second) }, codes.Unset, "snoozed"},
		{"panic", func() error { panic("no") }, codes.Unset, "exception"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			func() {
				defer func() {
					value := recover()
					check.That(t, (value != nil) == (c.name == "panic"), "recovered %v", value)
				}()
				err := b.Middleware(t.Context(), mail, nil, func(context.Context) error { return c.work() })
				check.That(t, err != nil, "the handler's error was lost")
			}()
			span := b.spans.Ended()[0]
			check.That(t, span.Status().Code == c.want && len(span.Events()) == 1 && span.Events()[0].Name == c.event,
				"status %v, events %v", span.Status(), span.Events())
			check.Equal(t, b.value(t, "worker.jobs.running", kind...), 0, "jobs run after the end")
		})
	}
}

// Each attempt counts once, by outcome; only one that ran has a duration; the application's own hooks are called, too.
func TestHooks(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var settled, stuck, waited int
	var ready bool
	hooks := b.Hooks(worker.Config{Stream: mail.Stream, Consumer: mail.Consumer, Hooks: worker.Hooks{
		Ready: func(r bool, _ error) { ready = r }, Settled: func(worker.Settlement) { settled++ }, Stuck: func(worker.StuckHandler) { stuck++ },
		Waiting: func(worker.Info, bool) { waited++ },
	}})
	other := b.Hooks(worker.Config{Stream: mail.Stream, Consumer: "other"}) // without its own hooks
	hooks.Ready(true, nil)
	hooks.Paused(2)
	other.Ready(false, nil)
	hooks.Waiting(mail, true)
	hooks.Waiting(mail, true)
	hooks.Waiting(mail, false)
	hooks.Stuck(worker.StuckHandler{Info: mail})
	for _, s := range []worker.Settlement{
		{Outcome: worker.OutcomeRetried, Ran: time.Second, Waited: time.Second},
		{Outcome: worker.OutcomeCompleted, Ran: time.Second, Waited: -time.Millisecond},
		{Outcome: worker.OutcomeHandedBack}, // never began
	} {
		s.Info = mail
		hooks.Settled(s)
	}
	with := func(outcome worker.Outcome) []attribute.KeyValue {
		return append(kind[:3:3], attribute.String("outcome", string(outcome)))
	}
	for _, c := range []struct {
		name   string
		labels []attribute.KeyValue
		want   int64
	}{
		{"worker.job.attempts", with(worker.OutcomeRetried), 1},
		{"worker.job.attempts", with(worker.OutcomeCompleted), 1},
		{"worker.job.attempts", with(worker.OutcomeHandedBack), 1},
		{"worker.job.duration", with(worker.OutcomeRetried), 1},
		{"worker.job.duration", with(worker.OutcomeHandedBack), 0},
		{"worker.job.wait", kind, 2},
		{"worker.job.age", with(worker.OutcomeCompleted), 1},
		{"worker.job.age", with(worker.OutcomeRetried), 0},
		{"worker.jobs.stuck", kind, 1},
		{"worker.jobs.waiting", kind, 1},
		{"worker.ready", kind[:2], 1},
		{"worker.paused", kind[:2], 2},
	} {
		got := b.value(t, c.name, c.labels...)
		check.That(t, got == c.want, "%s %v is %d, want %d", c.name, c.labels, got, c.want)
	}
	check.That(t, settled == 3 && stuck == 1 && waited == 3 && ready,
		"the application's hooks were called %d, %d and %d times, ready %t", settled, stuck, waited, ready)
	hooks.Ready(false, errors.New("down"))
	check.Equal(t, b.value(t, "worker.ready", kind[:2]...), 0, "ready")
	other.Settled(worker.Settlement{Info: mail})
}

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
	observe(t.Context(), flight.Event{Kind: flight.EventWaiting, Key: "other"}) // outside of any span

	in := attribute.String("bucket", "menus")
	of := func(kind flight.EventKind) attribute.KeyValue { return attribute.String("kind", string(kind)) }
	check.Equal(t, b.value(t, "kvlock.events", in, of(flight.EventWaiting)), 2, "waits")
	check.Equal(t, b.value(t, "kvlock.wait.duration", in, of(flight.EventCoalesced)), 1, "waits were timed")
	check.Equal(t, b.value(t, "kvlock.hold.duration", in), 1, "claims were timed")
	ended := b.spans.Ended()[0]
	check.That(t, len(ended.Events()) == 4 && ended.Events()[1].Name == "kvlock coalesced" && ended.Status().Code == codes.Error,
		"events %v, status %v", ended.Events(), ended.Status())
}
