package natsotel_test

import (
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsotel"
)

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

// value is what a metric has now for the given labels: a sum, the last value, or how many values a histogram recorded.
func (b *bundle) value(t *testing.T, name string, labels ...attribute.KeyValue) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := b.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	want := attribute.NewSet(slices.Clone(labels)...) // it sorts what it is given
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
