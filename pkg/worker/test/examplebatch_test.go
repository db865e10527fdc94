package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

// ExampleHandleBatch sends the mails of a batch with one request, which refuses one of them.
func ExampleHandleBatch() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		for _, to := range []string{"ada@example.org", "", "grace@example.org"} {
			if _, err := c.Insert(ctx, worker.NewJob{Args: Mail{To: to}, Subject: "jobs.mail.welcome"}); err != nil {
				return err
			}
		}

		ctx, stop := context.WithCancel(ctx)
		defer stop()

		w, err := worker.New(js, worker.Config{
			AutoCreate: true, Consumer: "mailer", Stream: "JOBS", Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}

		err = worker.HandleBatch(w, "jobs.mail.>", worker.Policy{}, worker.BatchPolicy{Size: 3},
			func(_ context.Context, jobs []*worker.Job[Mail]) error {
				defer stop()

				var failed worker.BatchError

				for _, job := range jobs {
					if job.Args.To == "" {
						failed.Set(job.Info, worker.Cancel(errors.New("no address")))
					}
				}

				fmt.Println(len(jobs), "mails in one request")

				return failed.Err() // of the others nothing is said: they are done
			})
		if err != nil {
			return err
		}

		if err := w.Run(ctx); err != nil {
			return err
		}

		dead, err := js.Stream(context.WithoutCancel(ctx), "DEAD")
		if err != nil {
			return err
		}

		fmt.Println(dead.CachedInfo().State.Msgs, "in the dead letters")

		return nil
	})
	// Output:
	// 3 mails in one request
	// 1 in the dead letters
}
