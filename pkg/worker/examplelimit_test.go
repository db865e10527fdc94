package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

// ExampleLimit has at most two imports run at once, in however many workers.
func ExampleLimit() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		const jobs = 10
		for i := range jobs {
			if _, err := c.Insert(ctx, worker.NewJob{Args: Mail{To: "ada@example.org"}, Subject: fmt.Sprintf("jobs.mail.%d", i)}); err != nil {
				return err
			}
		}

		var running, most, completed atomic.Int32
		last := func(worker.Settlement) bool { return completed.Add(1) == jobs }
		policy := worker.Policy{Limits: []worker.Limit{{Concurrency: 2, Name: "imports"}}}
		err := workUntil(ctx, js, jobs, last, func(w *worker.Worker) error {
			return worker.Handle(w, "jobs.mail.>", policy, func(context.Context, *worker.Job[Mail]) error {
				most.Store(max(most.Load(), running.Add(1)))
				running.Add(-1)
				return nil
			})
		})

		fmt.Println("at most two at once:", most.Load() <= 2)
		return err
	})
	// Output:
	// at most two at once: true
}
