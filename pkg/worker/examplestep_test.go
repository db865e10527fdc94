package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// Import is the payload of a job with steps.
type Import struct {
	URL string `json:"url"`
}

// Example_steps works two jobs that want the same transcript. The first fails in its
// second step, once, and goes on there.
func Example_steps() {
	withServer(exampleSteps)
	// Output:
	// transcribe video/7
	// jobs.import.1 retried
	// create soup
	// jobs.import.1 completed
	// create soup
	// jobs.import.2 completed
}

func exampleSteps(ctx context.Context, js jetstream.JetStream) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	if err := kvlock.CreateBucket(ctx, js, kvlock.BucketConfig{Bucket: "transcripts"}); err != nil {
		return err
	}

	transcripts, err := flight.New(ctx, js, flight.Config{Bucket: "transcripts"})
	if err != nil {
		return err
	}
	defer transcripts.Close()

	completed := 0

	w, err := worker.New(js, worker.Config{
		AutoCreate: true, Concurrency: 1, Consumer: "importer", Stream: "JOBS", Logger: slog.New(slog.DiscardHandler),
		Hooks: worker.Hooks{Settled: func(s worker.Settlement) {
			fmt.Println(s.Subject, s.Outcome)

			if s.Outcome != worker.OutcomeCompleted {
				return
			}

			completed++

			switch completed {
			case 1:
				if _, err := js.Publish(ctx, "jobs.import.2", []byte(`{"url":"video/7"}`)); err != nil {
					stop()
				}
			case 2:
				stop()
			}
		}},
	})
	if err != nil {
		return err
	}

	policy := worker.Policy{Backoff: worker.Exponential(time.Millisecond, time.Millisecond)}

	err = worker.Handle(w, "jobs.import.>", policy, func(ctx context.Context, job *worker.Job[Import]) error {
		text, err := step.Run(ctx, job, "transcript", func(ctx context.Context) (string, error) {
			shared, err := transcripts.Do(ctx, job.Args.URL, func(context.Context) ([]byte, error) {
				fmt.Println("transcribe", job.Args.URL)
				return []byte("soup"), nil
			}, flight.DoOptions{TTL: time.Hour})
			return string(shared.Value), err
		})
		if err != nil {
			return err
		}
		return step.Do(ctx, job, "create", func(context.Context) error {
			if job.Attempt == 1 && job.Sequence == 1 {
				return errors.New("the recipe service is away")
			}

			fmt.Println("create", text)
			return nil
		})
	})
	if err != nil {
		return err
	}

	if _, err := js.Publish(ctx, "jobs.import.1", []byte(`{"url":"video/7"}`)); err != nil {
		return err
	}
	return w.Run(ctx)
}
