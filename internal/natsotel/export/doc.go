// Package export exports the telemetry of a program: it serves metrics to Prometheus, and sends traces to a collector
// when the environment names one.
//
//	exports, err := export.Start(ctx, export.Config{Service: "enricher", Version: version})
//	...
//	telemetry, err := natsotel.New(natsotel.Config{
//		MeterProvider: exports.Meters, Propagator: exports.Propagator, TracerProvider: exports.Tracers,
//	})
//	mux.Handle("GET /metrics", exports.Metrics)
//	...
//	err = exports.Stop(ctx)
//
// It is a separate package, so that a program that only uses the adapter in natsotel does not depend on exporters.
//
// # Environment
//
// The variables are those of the OpenTelemetry specification. Traces are sent by OTLP over HTTP:
//
//	OTEL_EXPORTER_OTLP_ENDPOINT          where traces are sent, such as http://collector:4318; without it none are made
//	OTEL_EXPORTER_OTLP_TRACES_ENDPOINT   the same for traces alone, with its path
//	OTEL_EXPORTER_OTLP_HEADERS           such as a token for the collector: name=value,name=value with %-escapes
//	OTEL_EXPORTER_OTLP_TIMEOUT           milliseconds for one attempt, 10000 by default
//	OTEL_EXPORTER_OTLP_COMPRESSION       gzip, or none
//	OTEL_EXPORTER_OTLP_CERTIFICATE       a file with the certificates of those that vouch for the collector
//	OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE, OTEL_EXPORTER_OTLP_CLIENT_KEY   files with the certificate of the program, and its key
//	OTEL_EXPORTER_OTLP_PROTOCOL          http/protobuf, http/json, or nothing
//	OTEL_TRACES_SAMPLER                  which traces are kept; all by default
//	OTEL_RESOURCE_ATTRIBUTES             attributes of this process in every trace
//	OTEL_SDK_DISABLED                    "true" turns traces off
//
// Each OTEL_EXPORTER_OTLP_ variable may be set for traces alone, as OTEL_EXPORTER_OTLP_TRACES_. The error of [Start] names every
// mistake in them and quotes no header, since most headers are secrets.
package export
