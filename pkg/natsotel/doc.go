// Package natsotel connects workers, locks and flights with OpenTelemetry: traces, metrics and trace context in the
// headers of NATS messages. It uses the hooks of the packages worker and kvlock, which do not depend on it.
//
//	telemetry, err := natsotel.New(natsotel.Config{})
//	...
//	w, err := worker.New(js, worker.Config{
//		Stream: "JOBS", Consumer: "mailer",
//		Hooks:      telemetry.Hooks(worker.Hooks{}),
//		Middleware: []worker.Middleware{telemetry.Middleware},
//	})
//	menus, err := flight.New(ctx, js, flight.Config{Bucket: "menus", Observe: telemetry.Observe("menus")})
//
// It uses the API of OpenTelemetry only. Without providers, configured or global ones, it does nothing and costs next
// to nothing.
//
// # Metrics
//
// No label has an id, a subject or a key, whose number is unbounded. A job is labelled by the pattern of its handler.
//
//	worker.job.attempts      counter            stream, consumer, pattern, outcome
//	worker.job.duration      histogram, s       stream, consumer, pattern, outcome   of one attempt
//	worker.job.wait          histogram, s       stream, consumer, pattern            from stored to started, first attempts
//	worker.job.age           histogram, s       stream, consumer, pattern, outcome   from stored to completed or dead
//	worker.jobs.running      up-down counter    stream, consumer, pattern
//	worker.jobs.stuck        counter            stream, consumer, pattern            handlers that ignore their ended context
//	worker.jobs.waiting      up-down counter    stream, consumer, pattern            jobs that wait in a worker for a limit
//	worker.ready             gauge, 1 or 0                                           whether jobs can be pulled
//	kvlock.events            counter            bucket, kind
//	kvlock.hold.duration     histogram, s       bucket                               of a claim, from taken to ended
//	kvlock.wait.duration     histogram, s       bucket, kind                         until a wait ended, and how
//
// # Traces
//
// Each attempt is a span named "process <pattern>", of the kind consumer, that links to the span of the job's
// publisher, as the semantic conventions for messaging have it: a job may run long after its publisher has ended.
// Events of locks and claims are added to the spans of their callers.
package natsotel
