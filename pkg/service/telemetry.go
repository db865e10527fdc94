package service

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/expediter-io/expediter/pkg/natsotel"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
)

// exportTimeout bounds the export of the last spans when a service stops.
const exportTimeout = 5 * time.Second

// telemetry connects the parts of a service with the exporters, or with nothing when exports is nil.
func telemetry(name string, exports *export.Exports) (*natsotel.Telemetry, error) {
	to := natsotel.Config{MeterProvider: noopmetric.NewMeterProvider(), TracerProvider: nooptrace.NewTracerProvider()}
	if exports != nil {
		to = natsotel.Config{MeterProvider: exports.Meters, Propagator: exports.Propagator, TracerProvider: exports.Tracers}
	}
	t, err := natsotel.New(to)
	if err != nil {
		return nil, fmt.Errorf("%s: telemetry: %w", name, err)
	}
	return t, nil
}

// StopExports exports what is left, within 5 seconds, also when ctx has ended.
func StopExports(ctx context.Context, exports *export.Exports) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTimeout)
	defer cancel()
	return exports.Stop(ctx)
}

// quiet are the paths of probes, which would flood the traces.
var quiet = map[string]bool{"/health": true, "/livez": true, "/metrics": true, "/readyz": true, "/version": true}

// observed wraps a handler so that its requests are traced and timed.
func observed(name string, exports *export.Exports, handler http.Handler) http.Handler {
	if exports == nil {
		return handler
	}
	return otelhttp.NewHandler(handler, name,
		otelhttp.WithMeterProvider(exports.Meters), otelhttp.WithPropagators(exports.Propagator),
		otelhttp.WithServerName(name+":0"), // else labels have the host and the port that a client names
		otelhttp.WithTracerProvider(exports.Tracers), otelhttp.WithFilter(func(r *http.Request) bool { return !quiet[r.URL.Path] }),
	)
}
