package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// maxAttribute bounds the values of attributes, in bytes, unless OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT is set.
const maxAttribute = 1 << 10

// Config configures the exporters. Service is required.
type Config struct {
	// Service is the name of the program in traces and metrics. Required.
	Service string

	// Version is the version of the program. Defaults to "unknown".
	Version string
}

// Exports are the running exporters.
type Exports struct {
	// Meters makes the metrics that Metrics serves. It is an interface, like Tracers, so that importers of this package do not compile the
	// generic types of the SDK again.
	Meters metric.MeterProvider

	// Metrics answers with all metrics in the text format of Prometheus.
	Metrics http.Handler

	// Propagator writes and reads the trace context of the W3C, and baggage.
	Propagator propagation.TextMapPropagator

	// Tracers makes the spans that are sent. When the environment names no collector, it records nothing, but passes trace context on.
	Tracers trace.TracerProvider

	stops []func(context.Context) error
}

// Start starts the exporters. A collector that cannot be reached is not an error: spans are dropped then.
func Start(ctx context.Context, cfg Config) (*Exports, error) {
	version := cmp.Or(cfg.Version, "unknown")
	if cfg.Service == "" {
		return nil, errors.New("export: Config.Service is empty: name the program")
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", cfg.Service), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("export: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("export: metrics: %w", err)
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(about))
	e := &Exports{
		Meters:     meters,
		Metrics:    promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}),
		Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
		Tracers:    noop.NewTracerProvider(),
		stops:      []func(context.Context) error{meters.Shutdown},
	}
	if !collected() {
		return e, nil
	}
	if err := checkEnvironment(); err != nil {
		return nil, fmt.Errorf("export: traces: %w", err)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export: traces: %w", err)
	}
	limits := sdktrace.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 { // clients choose some attributes, such as their name and the path
		limits.AttributeValueLengthLimit = maxAttribute
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about), sdktrace.WithRawSpanLimits(limits))
	e.Tracers, e.stops = tracers, append(e.stops, tracers.Shutdown)
	return e, nil
}

// Stop sends the remaining spans, until ctx ends, and stops the exporters.
func (e *Exports) Stop(ctx context.Context) error {
	var errs []error
	for _, stop := range e.stops {
		if err := stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("export: stop: %w", err))
		}
	}
	return errors.Join(errs...)
}

// collected reports whether the environment names a collector.
func collected() bool {
	return !strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") &&
		(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "")
}
