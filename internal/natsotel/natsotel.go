package natsotel

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// scope names this package to OpenTelemetry.
const scope = "github.com/expediter-io/expediter/internal/natsotel"

// system is the name of the messaging system in the sense of the semantic conventions, which do not list NATS yet.
const system = "nats"

// Config configures [Telemetry]. The zero value is ready to use.
type Config struct {
	// MeterProvider takes the metrics. Defaults to the global one.
	MeterProvider metric.MeterProvider

	// Propagator writes and reads trace context. Defaults to the global one.
	Propagator propagation.TextMapPropagator

	// TracerProvider takes the spans. Defaults to the global one.
	TracerProvider trace.TracerProvider
}

// Telemetry is the adapter. One serves any number of workers, locks and flights; it is safe for concurrent use.
type Telemetry struct {
	meter      metric.Meter
	propagator propagation.TextMapPropagator
	tracer     trace.Tracer
	traces     bool // spans are recorded
	jobs       jobMetrics
	locks      lockMetrics
	operations operationMetrics
	requests   requestMetrics
}

// New returns an adapter, or the error with which the provider refused a metric.
func New(cfg Config) (*Telemetry, error) {
	cfg.MeterProvider = cmp.Or(cfg.MeterProvider, otel.GetMeterProvider())
	cfg.Propagator = cmp.Or(cfg.Propagator, otel.GetTextMapPropagator())
	cfg.TracerProvider = cmp.Or(cfg.TracerProvider, otel.GetTracerProvider())
	_, off := cfg.TracerProvider.(noop.TracerProvider)
	m := &maker{meter: cfg.MeterProvider.Meter(scope)}
	t := &Telemetry{
		meter: m.meter, propagator: cfg.Propagator, tracer: cfg.TracerProvider.Tracer(scope), traces: !off,
		jobs: newJobMetrics(m), locks: newLockMetrics(m), operations: newOperationMetrics(m), requests: newRequestMetrics(m),
	}
	return t, errors.Join(m.errs...)
}

// Inject writes the trace context of ctx into the headers of a message that is about to be published, so that the spans
// of the job link to it. header must not be nil.
func (t *Telemetry) Inject(ctx context.Context, header nats.Header) {
	if t != nil {
		t.propagator.Inject(ctx, Carrier(header))
	}
}

// Extract returns ctx with the trace context in the headers of a message: spans that begin with it are children of that context's span.
func (t *Telemetry) Extract(ctx context.Context, header nats.Header) context.Context {
	if t == nil || header == nil {
		return ctx
	}
	return t.propagator.Extract(ctx, Carrier(header))
}

// Link links the span of ctx to the trace context in the headers of a message, if both exist.
func (t *Telemetry) Link(ctx context.Context, header nats.Header) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		if other := trace.SpanContextFromContext(t.Extract(trace.ContextWithSpan(ctx, nil), header)); other.IsValid() {
			span.AddLink(trace.Link{SpanContext: other})
		}
	}
}

// seconds are the bounds of the histograms, from the shortest round trip to the longest job.
var seconds = metric.WithExplicitBucketBoundaries(
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)

// labels are the labels of one kind of measurement, in the form of the instruments' arguments, so that none is made again for each
// measurement.
type labels struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newLabels(all ...attribute.KeyValue) labels {
	set := metric.WithAttributeSet(attribute.NewSet(all...))
	return labels{add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
}

// maker makes instruments and collects their errors.
type maker struct {
	meter metric.Meter
	errs  []error
}

func (m *maker) counter(name, unit, description string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return c
}

func (m *maker) upDown(name, unit, description string) metric.Int64UpDownCounter {
	c, err := m.meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return c
}

func (m *maker) gauge(name, description string) metric.Int64Gauge {
	g, err := m.meter.Int64Gauge(name, metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return g
}

func (m *maker) histogram(name, description string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), seconds)
	m.errs = append(m.errs, err)
	return h
}

// Carrier reads and writes trace context in the headers of a NATS message. It is a TextMapCarrier of OpenTelemetry over nats.Header. Names
// are written in lower case, as the W3C defines traceparent and tracestate, and read in any case. nats.Header itself is case-sensitive, so
// readers of a NATS message do not find the names that OpenTelemetry's HeaderCarrier writes.
type Carrier nats.Header

// Get returns the first value of a header, or "". Among names that differ only in case it prefers the exact name, and otherwise the first
// in alphabetical order.
func (c Carrier) Get(key string) string {
	values, ok := c[key]
	if !ok {
		var name string
		for existing := range c {
			if strings.EqualFold(existing, key) && (name == "" || existing < name) {
				name = existing
			}
		}
		values = c[name]
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// Set replaces a header, in any case.
func (c Carrier) Set(key, value string) {
	for existing := range c {
		if strings.EqualFold(existing, key) {
			delete(c, existing)
		}
	}
	c[strings.ToLower(key)] = []string{value}
}

// Keys returns the names of all headers, in alphabetical order.
func (c Carrier) Keys() []string {
	return slices.Sorted(maps.Keys(c))
}

// cache keeps a value for each of a few keys. It takes two thirds of the time of a sync.Map. Each importer of this package would also
// compile the generic map of sync.Map again.
type cache[K comparable, V any] struct {
	mu  sync.Mutex              // held to replace the map
	all atomic.Pointer[map[K]V] // never changed
}

func newCache[K comparable, V any]() *cache[K, V] {
	c := &cache[K, V]{}
	c.all.Store(&map[K]V{})
	return c
}

func (c *cache[K, V]) load(key K) (value V, ok bool) {
	value, ok = (*c.all.Load())[key]
	return value, ok
}

func (c *cache[K, V]) store(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := maps.Clone(*c.all.Load())
	all[key] = value
	c.all.Store(&all)
}
