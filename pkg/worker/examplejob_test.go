package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

// Example runs a worker against an embedded server until two jobs are settled.
func Example() {
	withServer(example)
	// Output:
	// sent to ada@example.org
	// jobs.mail.1 completed
	// jobs.mail.2 dead: no address
}

func example(ctx context.Context, js jetstream.JetStream) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	settled := 0

	w, err := worker.New(js, worker.Config{
		AutoCreate: true, Concurrency: 1, Consumer: "mailer", Stream: "JOBS", Logger: slog.New(slog.DiscardHandler),
		Hooks: worker.Hooks{Settled: func(s worker.Settlement) {
			if s.Err != nil {
				fmt.Printf("%s %s: %v\n", s.Subject, s.Outcome, s.Err)
			} else {
				fmt.Println(s.Subject, s.Outcome)
			}

			settled++
			if settled == 2 {
				stop()
			}
		}},
	})
	if err != nil {
		return err
	}

	err = worker.Handle(w, "jobs.mail.>", worker.Policy{}, func(_ context.Context, job *worker.Job[Mail]) error {
		if job.Args.To == "" {
			return worker.Discard(errors.New("no address"))
		}

		fmt.Println("sent to", job.Args.To)
		return nil
	})
	if err != nil {
		return err
	}

	for i, body := range []string{`{"to":"ada@example.org"}`, `{}`} {
		if _, err := js.Publish(ctx, fmt.Sprintf("jobs.mail.%d", i+1), []byte(body)); err != nil {
			return err
		}
	}
	return w.Run(ctx)
}
