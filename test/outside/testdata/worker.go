//go:build ignore

// A job in two steps. A step that is done is not done again, whatever becomes of the process.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	srv := must(natsrun.Start(natsrun.Config{})) // an embedded server; nats.Connect(url) connects to another
	defer srv.Stop()
	js := must(jetstream.New(must(srv.Connect())))
	must(js.CreateStream(ctx, worker.StreamConfig("JOBS", "jobs.>")))
	must(js.Publish(ctx, "jobs.mail.1", []byte(`"Ada"`)))
	w := must(worker.New(js, worker.Config{Stream: "JOBS", Consumer: "mailer", AutoCreate: true}))
	must(w, worker.Handle(w, "jobs.mail.>", worker.Policy{}, func(ctx context.Context, job *worker.Job[string]) error {
		defer stop()
		text, err := step.Run(ctx, job, "write", func(context.Context) (string, error) { return "Hello, " + job.Args, nil })
		if err != nil {
			return err // the job is tried again
		}
		return step.Do(ctx, job, "send", func(context.Context) error { fmt.Println(text); return nil })
	}))
	must(w, w.Run(ctx)) // until stop is called
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// Output: Hello, Ada
