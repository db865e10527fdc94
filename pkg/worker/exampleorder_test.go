package worker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

// With Ordered, the jobs of one subject run one after the other, though there are slots for all. The deposit fails at first, and the
// withdrawal waits for its retry.
func ExamplePolicy_ordered() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		for _, entry := range []string{"open", "deposit", "withdraw"} {
			if _, err := c.Insert(ctx, worker.NewJob{Args: entry, Subject: "jobs.account.7"}); err != nil {
				return err
			}
		}

		completed := 0
		last := func(s worker.Settlement) bool {
			if s.Outcome == worker.OutcomeCompleted {
				completed++
			}
			return completed == 3
		}
		return workUntil(ctx, js, 10, last, func(w *worker.Worker) error {
			return worker.Handle(w, "jobs.account.*", worker.Policy{Ordered: true},
				func(_ context.Context, job *worker.Job[string]) error {
					fmt.Println(job.Args, job.Attempt)
					if job.Args == "deposit" && job.Attempt == 1 {
						return worker.Retry(100*time.Millisecond, errors.New("the ledger is locked"))
					}
					return nil
				})
		})
	})
	// Output:
	// open 1
	// deposit 1
	// deposit 2
	// withdraw 1
}
