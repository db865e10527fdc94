package natsotel

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/semconv/v1.43.0/rpcconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// OutcomeOK is the outcome of an [Operation] that has not failed.
const OutcomeOK = "ok"

// operationMetrics are the instruments of a program's operations outside of its jobs.
type operationMetrics struct {
	answers rpcconv.ServerCallDuration
	calls   metric.Float64Histogram
	held    metric.Int64ObservableGauge
	sends   messagingconv.ClientOperationDuration
	sent    messagingconv.ClientSentMessages

	made *cache[operationKind, *operationLabels]
}

func newOperationMetrics(m *maker) operationMetrics {
	held, err := m.meter.Int64ObservableGauge("remote.held", metric.WithUnit("{remote_service}"),
		metric.WithDescription("Remote services that are not called now, because they failed."))
	m.errs = append(m.errs, err)
	sends, err := messagingconv.NewClientOperationDuration(m.meter, seconds)
	m.errs = append(m.errs, err)
	sent, err := messagingconv.NewClientSentMessages(m.meter)
	m.errs = append(m.errs, err)
	answers, err := rpcconv.NewServerCallDuration(m.meter)
	m.errs = append(m.errs, err)
	return operationMetrics{
		answers: answers, calls: m.histogram("remote.call.duration", "How long calls of remote services took, by outcome."),
		held: held, sends: sends, sent: sent, made: newCache[operationKind, *operationLabels](),
	}
}

// task is the kind of an operation.
type task int

const (
	taskCall task = iota
	taskSend
	taskAnswer
)

// operationKind has the labels of an operation. There are few.
type operationKind struct {
	name, outcome string // the name of the remote service, of the destination, or of the method
	task          task
}

// failed reports whether the operation has failed. As over HTTP, a request that is refused for its own mistake has not.
func (k operationKind) failed() bool {
	return k.outcome != OutcomeOK && (k.task != taskAnswer || k.outcome >= "500")
}

// operationLabels are made once for each kind: making them costs more than counting.
type operationLabels struct {
	metric labels
	span   []trace.SpanStartOption
	title  string
}

func (m *operationMetrics) labels(k operationKind) *operationLabels {
	if made, ok := m.made.load(k); ok {
		return made
	}
	made := &operationLabels{}
	var about, more, ended []attribute.KeyValue // more is for spans only, ended for metrics only
	kind := trace.SpanKindClient
	switch k.task {
	case taskCall:
		made.title = "call " + k.name
		about, ended = []attribute.KeyValue{attribute.String("remote", k.name)}, []attribute.KeyValue{attribute.String("outcome", k.outcome)}
	case taskSend:
		kind, made.title = trace.SpanKindProducer, "send "+k.name
		about = []attribute.KeyValue{
			attribute.String("messaging.system", system), attribute.String("messaging.operation.name", "send"),
			m.sends.AttrDestinationName(k.name),
		}
		more = []attribute.KeyValue{m.sends.AttrOperationType(messagingconv.OperationTypeSend)}
	case taskAnswer:
		kind, made.title = trace.SpanKindServer, k.name
		about = []attribute.KeyValue{attribute.String("rpc.system.name", system), m.answers.AttrMethod(k.name)}
		if k.outcome != OutcomeOK {
			ended = []attribute.KeyValue{m.answers.AttrResponseStatusCode(k.outcome)}
		}
	}
	if k.task != taskCall && k.failed() {
		ended = append(ended, attribute.String("error.type", k.outcome))
	}
	made.span = []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(slices.Concat(about, more)...)}
	made.metric = newLabels(slices.Concat(about, ended)...)
	m.made.store(k, made)
	return made
}

// Operation is a call, or the sending of a message, under way. The zero value measures nothing.
type Operation struct {
	of    *Telemetry
	kind  operationKind
	span  trace.Span // nil when none is recorded
	start time.Time
}

// Call begins a call of a remote service, such as a provider, in a span of the kind client. The name is a label: there must be
// few names.
func (t *Telemetry) Call(ctx context.Context, remote string) (context.Context, Operation) {
	return t.begin(ctx, operationKind{name: remote, outcome: OutcomeOK, task: taskCall})
}

// CallApart is Call for one of very many calls with one cause, such as those of a plan for a million users. Its span begins a new trace,
// as a job's span does, and links to the span of ctx.
func (t *Telemetry) CallApart(ctx context.Context, remote string) (context.Context, Operation) {
	if t == nil || !t.traces {
		return t.Call(ctx, remote)
	}
	of := operationKind{name: remote, outcome: OutcomeOK, task: taskCall}
	return t.begin(ctx, of, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)))
}

// Send begins to send a message to a destination. There must be few destinations: use the name of the stream, not the subject. Send makes
// a span of the kind producer, and writes its context into header, which must not be nil, so that the span of the consumer links to it.
func (t *Telemetry) Send(ctx context.Context, destination string, header nats.Header) (context.Context, Operation) {
	ctx, o := t.begin(ctx, operationKind{name: destination, outcome: OutcomeOK, task: taskSend})
	if o.of != nil {
		t.Inject(ctx, header)
	}
	return ctx, o
}

// Answer begins to answer a request, in a span of the kind server. Its parent is the requester's span, whose context is in header. The
// method is a label, such as the subject of an endpoint: there must be few methods.
func (t *Telemetry) Answer(ctx context.Context, method string, header nats.Header) (context.Context, Operation) {
	return t.begin(t.Extract(ctx, header), operationKind{name: method, outcome: OutcomeOK, task: taskAnswer})
}

// begin does nothing when t is nil.
func (t *Telemetry) begin(ctx context.Context, k operationKind, more ...trace.SpanStartOption) (context.Context, Operation) {
	if t == nil {
		return ctx, Operation{}
	}
	o := Operation{of: t, kind: k, start: time.Now()}
	if t.traces {
		about := t.operations.labels(k)
		options := append(slices.Clip(about.span), more...)
		ctx, o.span = t.tracer.Start(ctx, about.title, options...) //nolint:spancheck // End ends it
	}
	return ctx, o
}

// End ends the operation. outcome is [OutcomeOK] or the kind of the failure. It is a label: there must be few kinds. err describes the
// failure in the span; it may be nil.
func (o Operation) End(outcome string, err error) { o.end(outcome, 1, err) }

// end ends the operation, which has sent n messages if its task is taskSend.
func (o Operation) end(outcome string, n int, err error) {
	if o.of == nil {
		return
	}
	o.kind.outcome = outcome
	ctx := context.Background() //nolint:forbidigo // metrics need none
	if o.span != nil {
		if o.kind.task == taskAnswer && outcome != OutcomeOK {
			o.span.SetAttributes(o.of.operations.answers.AttrResponseStatusCode(outcome))
		}
		if o.kind.failed() {
			o.span.SetAttributes(attribute.String("error.type", outcome))
			o.span.SetStatus(codes.Error, text(err))
		}
		o.span.End()
		ctx = trace.ContextWithSpan(ctx, o.span) // for exemplars
	}
	m, took := &o.of.operations, time.Since(o.start).Seconds()
	of := m.labels(o.kind).metric
	switch o.kind.task {
	case taskCall:
		m.calls.Record(ctx, took, of.record...)
	case taskAnswer:
		m.answers.Inst().Record(ctx, took, of.record...)
	case taskSend:
		m.sends.Inst().Record(ctx, took, of.record...)
		m.sent.Inst().Add(ctx, int64(n), of.add...)
	}
}

// EndSend ends the sending of a message, which has failed unless err is nil.
func (o Operation) EndSend(err error) {
	outcome := OutcomeOK
	if err != nil {
		outcome = "error"
	}
	o.End(outcome, err)
}

// EndSends ends the sending of n messages at once. Unless err is nil, one more message has failed.
func (o Operation) EndSends(n int, err error) {
	if o.of == nil {
		return
	}
	if o.span != nil {
		o.span.SetAttributes(attribute.Int("messaging.batch.message_count", n))
	}
	if err == nil {
		o.end(OutcomeOK, n, nil)
		return
	}
	m := &o.of.operations
	m.sent.Inst().Add(context.Background(), int64(n), m.labels(o.kind).metric.add...) //nolint:forbidigo // metrics need none
	o.end("error", 1, err)
}

// EndAnswer ends the answer to a request: an error with an HTTP status, unless err is nil. With a status below 500 the requester is to
// blame, and the operation has not failed.
func (o Operation) EndAnswer(status int, err error) {
	outcome := OutcomeOK
	if err != nil {
		outcome = strconv.Itoa(status)
	}
	o.End(outcome, err)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// ObserveHeld calls held whenever the metrics are read, until stop is called. held calls tell with the number of remote services under a
// name that are not called now. There must be few names.
func (t *Telemetry) ObserveHeld(held func(tell func(remote string, n int))) (stop func() error, err error) {
	registered, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		held(func(remote string, n int) {
			o.ObserveInt64(t.operations.held, int64(n), metric.WithAttributes(attribute.String("remote", remote)))
		})
		return nil
	}, t.operations.held)
	if err != nil {
		return nil, err
	}
	return registered.Unregister, nil
}

// lockMetrics are the instruments of locks and flights.
type lockMetrics struct {
	events     metric.Int64Counter
	hold, wait metric.Float64Histogram
}

func newLockMetrics(m *maker) lockMetrics {
	return lockMetrics{
		events: m.counter("kvlock.events", "{event}", "Events of keys, by kind."),
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
		default: // took no time
		}
		annotate(trace.SpanFromContext(ctx), in, e)
	}
}

// annotate adds an event to a span, if the span is recorded.
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
