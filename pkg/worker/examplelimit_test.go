package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker"
)

// ExampleLimit has at most two imports run at once, in however many workers.
func ExampleLimit() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		var running, most atomic.Int32

		err := exampleLimit(ctx, js, c, 10, worker.Limit{Concurrency: 2, Name: "imports"}, func(*worker.Job[Mail]) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
		})

		fmt.Println("at most two at once:", most.Load() <= 2)
		return err
	})
	// Output:
	// at most two at once: true
}

// ExampleLimit_key has each host be sent one mail at a time. Mails to others do not wait.
func ExampleLimit_key() {
	host := func(_ worker.Info, _ nats.Header, payload []byte) string {
		var mail Mail

		if err := json.Unmarshal(payload, &mail); err != nil {
			return "" // all that cannot be read have one key
		}

		_, host, _ := strings.Cut(mail.To, "@")
		return host
	}

	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		var sent atomic.Int32

		err := exampleLimit(ctx, js, c, 3, worker.Limit{Concurrency: 1, Key: host, Name: "hosts"}, func(*worker.Job[Mail]) {
			sent.Add(1)
		})

		fmt.Println(sent.Load(), "sent")
		return err
	})
	// Output:
	// 3 sent
}

// ExampleLimit_rate starts 100 jobs in a second, the first two at once.
func ExampleLimit_rate() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		began := time.Now()
		limit := worker.Limit{Burst: 2, Name: "api", Per: time.Second, Rate: 100}

		err := exampleLimit(ctx, js, c, 7, limit, func(*worker.Job[Mail]) {})

		fmt.Println("at least 50 ms:", time.Since(began) >= 50*time.Millisecond)
		return err
	})
	// Output:
	// at least 50 ms: true
}

// exampleLimit works n jobs under a limit.
func exampleLimit(
	ctx context.Context, js jetstream.JetStream, c *worker.Client, n int, limit worker.Limit, work func(*worker.Job[Mail]),
) error {
	for i := range n {
		if _, err := c.Insert(ctx, worker.NewJob{Args: Mail{To: "ada@example.org"}, Subject: fmt.Sprintf("jobs.mail.%d", i)}); err != nil {
			return err
		}
	}

	var completed atomic.Int32

	last := func(s worker.Settlement) bool {
		return s.Outcome == worker.OutcomeCompleted && completed.Add(1) == int32(n)
	}
	return workUntil(ctx, js, n, last, func(w *worker.Worker) error {
		return worker.Handle(w, "jobs.mail.>", worker.Policy{Limits: []worker.Limit{limit}}, func(_ context.Context, job *worker.Job[Mail]) error {
			work(job)
			return nil
		})
	})
}
