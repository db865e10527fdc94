package test

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

func ExampleClient_Replace() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		for _, body := range []string{"first draft", "second draft", "final"} {
			receipt, err := c.Replace(ctx, worker.NewJob{
				Args: Mail{To: body}, Subject: "jobs.mail.digest", Delay: 600 * time.Millisecond, Unique: &worker.Unique{},
			})
			fmt.Println(receipt.State, receipt.Replaced, err)
		}
		return workOne(ctx, js, func(_ context.Context, job *worker.Job[Mail]) error {
			fmt.Println("ran once:", job.Args.To)
			return nil
		})
	})
	// Output:
	// scheduled false <nil>
	// scheduled true <nil>
	// scheduled true <nil>
	// ran once: final
}

func ExampleClient_Cancel() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		cancel := func() {
			was, err := c.Cancel(ctx, "jobs.mail", "ada")
			fmt.Println("was", was.State, err)
		}

		_, err := c.Insert(ctx, worker.NewJob{Subject: "jobs.mail", Delay: time.Hour, Unique: &worker.Unique{Key: "ada"}})
		if err != nil {
			return err
		}

		cancel()
		cancel()

		_, err = c.Replace(ctx, worker.NewJob{Args: Mail{To: "ada"}, Subject: "jobs.mail", Unique: &worker.Unique{Key: "ada"}})
		if err != nil {
			return err
		}
		return workOne(ctx, js, func(ctx context.Context, _ *worker.Job[Mail]) error {
			cancel()
			<-ctx.Done()
			fmt.Println(context.Cause(ctx))
			return ctx.Err()
		})
	})
	// Output:
	// was scheduled <nil>
	// was free <nil>
	// was running <nil>
	// worker: job cancelled by a client
}

func ExampleJob_Progress() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		if _, err := c.Insert(ctx, worker.NewJob{Args: Mail{}, Subject: "jobs.mail.all"}); err != nil {
			return err
		}
		return workOne(ctx, js, func(ctx context.Context, job *worker.Job[Mail]) error {
			if err := job.Progress(ctx, map[string]int{"sent": 120, "of": 300}); err != nil {
				return err
			}

			progress, err := c.Progress(ctx, "jobs.mail.all", "") // from anywhere
			fmt.Println(progress.State, string(progress.Value), err)
			return nil
		})
	})
	// Output: running {"of":300,"sent":120} <nil>
}
