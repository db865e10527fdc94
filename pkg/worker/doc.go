// Package worker runs jobs from a JetStream stream: typed handlers, bounded concurrency,
// retries with backoff, dead letters, and a shutdown that loses nothing.
//
//	w, err := worker.New(js, worker.Config{Stream: "JOBS", Consumer: "mailer"})
//	...
//	err = worker.Handle(w, "jobs.mail.>", worker.Policy{MaxAttempts: 5},
//		func(ctx context.Context, job *worker.Job[Mail]) error {
//			return send(ctx, job.Args)
//		})
//	...
//	err = w.Run(ctx) // until ctx ends, then gracefully
package worker
