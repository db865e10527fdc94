// Package natsotel connects workers, locks and flights with OpenTelemetry: traces, metrics and trace context in the
// headers of NATS messages. It uses the hooks of the packages worker and kvlock, which do not depend on it.
//
//	telemetry, err := natsotel.New(natsotel.Config{})
//	...
//	cfg := worker.Config{Stream: "JOBS", Consumer: "mailer", Middleware: []worker.Middleware{telemetry.Middleware}}
//	cfg.Hooks = telemetry.Hooks(cfg)
//	w, err := worker.New(js, cfg)
//	menus, err := flight.New(ctx, js, flight.Config{Bucket: "menus", Observe: telemetry.Observe("menus")})
//
// It uses the API of OpenTelemetry only. Without providers, configured or global ones, it does nothing and costs next
// to nothing.
//
// # Metrics
//
// docs/metrics.md lists the metrics with their labels: those whose names begin with worker, kvlock or remote, and those of the semantic
// conventions for messaging. No label has an id, a subject or a key, whose number is unbounded. A job is labelled by the pattern of its
// handler.
//
// # Traces
//
// Each attempt is a span named "process <pattern>", of the kind consumer, that links to the span of the job's publisher, as in the
// semantic conventions for messaging: a job may run long after its publisher has ended. The span of [Telemetry.Send] is of the kind
// producer, that of [Telemetry.Call] of the kind client. Events of locks and claims are added to the spans of their callers.
package natsotel
