package step_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// Import is the payload of a job.
type Import struct {
	URL string `json:"url"`
}

// A handler's first attempt fails in its second step. The next one goes on there.
func ExampleRun() {
	work(func(ctx context.Context, job *worker.Job[Import]) error {
		text, err := step.Run(ctx, job, "transcript", func(context.Context) (string, error) {
			fmt.Println("transcribing", job.Args.URL)
			return "two eggs, one lemon", nil
		})
		if err != nil {
			return err
		}
		lines, err := step.Run(ctx, job, "extract", func(context.Context) ([]string, error) {
			if job.Attempt == 1 {
				return nil, errors.New("the model is busy")
			}
			return strings.Split(text, ", "), nil
		})
		if err != nil {
			return err
		}
		fmt.Printf("%q\n", lines)
		return nil
	})
	// Output:
	// transcribing video/7
	// retried: the model is busy
	// ["two eggs" "one lemon"]
	// completed
}

// work runs a server and a worker until one job is completed, and prints the outcomes.
func work(handle worker.Handler[Import]) {
	out := log.New(os.Stdout, "", 0)
	ctx, stop := context.WithCancel(context.Background())
	srv := must(natsrun.Start(natsrun.Config{}))
	defer srv.Stop()
	nc := must(srv.Connect())
	defer nc.Close()
	js := must(jetstream.New(nc))
	must(js.CreateStream(ctx, worker.StreamConfig("JOBS", "jobs.>")))
	must(js.Publish(ctx, "jobs.import", []byte(`{"url":"video/7"}`)))
	w := must(worker.New(js, worker.Config{
		AutoCreate: true, Consumer: "importer", Logger: slog.New(slog.DiscardHandler), Stream: "JOBS",
		Hooks: worker.Hooks{Settled: func(s worker.Settlement) {
			if s.Outcome == worker.OutcomeCompleted {
				out.Println(s.Outcome)
				stop()
				return
			}
			out.Printf("%s: %v", s.Outcome, s.Err)
		}},
	}))
	must(w, worker.Handle(w, "jobs.import", worker.Policy{Backoff: worker.Exponential(0, 0)}, handle))
	must(w, w.Run(ctx))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
