package worker_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

// ExamplePriority has one slot for mails with passwords and for newsletters. While both
// wait, four passwords are sent for each newsletter.
func ExamplePriority() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		for _, subject := range []string{
			"jobs.news.1", "jobs.news.2",
			"jobs.password.1", "jobs.password.2", "jobs.password.3", "jobs.password.4", "jobs.password.5",
		} {
			if _, err := c.Insert(ctx, worker.NewJob{Args: Mail{To: "ada@example.org"}, Subject: subject}); err != nil {
				return err
			}
		}

		left := 7
		last := func(worker.Settlement) bool { left--; return left == 0 }
		return workUntil(ctx, js, 1, last, func(w *worker.Worker) error {
			send := func(_ context.Context, job *worker.Job[Mail]) error {
				fmt.Println(job.Subject, "by", job.Consumer)
				return nil
			}
			return errors.Join(
				worker.Handle(w, "jobs.password.>", worker.Policy{Priority: worker.PriorityHigh}, send),
				worker.Handle(w, "jobs.news.>", worker.Policy{}, send),
			)
		})
	})
	// Output:
	// jobs.password.1 by mailer-high
	// jobs.news.1 by mailer
	// jobs.password.2 by mailer-high
	// jobs.password.3 by mailer-high
	// jobs.password.4 by mailer-high
	// jobs.password.5 by mailer-high
	// jobs.news.2 by mailer
}
