package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/worker"
)

// withServer gives an example an embedded server with a stream of jobs.
func withServer(example func(ctx context.Context, js jetstream.JetStream) error) {
	srv := must(natsrun.Start(natsrun.Config{}))
	defer srv.Stop()
	nc := must(srv.Connect())
	defer nc.Close()
	js := must(jetstream.New(nc))
	ctx, cancel := context.WithTimeout(context.Background(), patience())
	defer cancel()
	must(js.CreateStream(ctx, worker.StreamConfig("JOBS", "jobs.>")))
	must(js, example(ctx, js))
}

// must ends an example that failed.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// withClient gives an example a client as well.
func withClient(example func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error) {
	withServer(func(ctx context.Context, js jetstream.JetStream) error {
		return example(ctx, js, must(worker.NewClient(js, worker.ClientConfig{Stream: "JOBS"})))
	})
}

// workOne works jobs until one is settled.
func workOne(ctx context.Context, js jetstream.JetStream, h worker.Handler[Mail]) error {
	return workUntil(ctx, js, 1, func(worker.Settlement) bool { return true }, func(w *worker.Worker) error {
		return worker.Handle(w, "jobs.mail.>", worker.Policy{}, h)
	})
}

// workUntil works jobs until a settlement is the last. register registers handlers.
func workUntil(
	ctx context.Context, js jetstream.JetStream, concurrency int, last func(worker.Settlement) bool, register func(*worker.Worker) error,
) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	w := must(worker.New(js, worker.Config{
		AckWait: time.Second, AutoCreate: true, Concurrency: concurrency, Consumer: "mailer", Stream: "JOBS", Logger: slog.New(slog.DiscardHandler),
		Hooks: worker.Hooks{Settled: func(s worker.Settlement) {
			if last(s) {
				stop()
			}
		}},
	}))
	must(w, register(w))
	return w.Run(ctx)
}

func ExampleClient_Insert() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		receipt, err := c.Insert(ctx, worker.NewJob{Args: Mail{To: "ada@example.org"}, Subject: "jobs.mail.welcome"})
		if err != nil {
			return err
		}

		fmt.Println(receipt.Subject, receipt.Sequence, receipt.State)
		return workOne(ctx, js, func(_ context.Context, job *worker.Job[Mail]) error {
			fmt.Println("sent to", job.Args.To, job.ID == receipt.ID)
			return nil
		})
	})
	// Output:
	// jobs.mail.welcome 1 queued
	// sent to ada@example.org true
}

func ExampleClient_Insert_unique() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		insert := func() {
			receipt, err := c.Insert(ctx, worker.NewJob{
				Args: Mail{To: "ada@example.org"}, Subject: "jobs.mail", Unique: &worker.Unique{Key: "ada@example.org", Keep: 24 * time.Hour},
			})
			fmt.Println(receipt.Subject, receipt.State, receipt.Duplicate, err)
		}

		insert()
		insert()

		if err := workOne(ctx, js, func(context.Context, *worker.Job[Mail]) error { return nil }); err != nil {
			return err
		}

		insert()
		return nil
	})
	// Output:
	// jobs.mail.=YWRhQGV4YW1wbGUub3Jn queued false <nil>
	// jobs.mail.=YWRhQGV4YW1wbGUub3Jn queued true <nil>
	// jobs.mail.=YWRhQGV4YW1wbGUub3Jn done true <nil>
}

// A job that the server inserts by itself, whichever processes are there. Every instance
// may call Schedule whenever it starts.
func ExampleClient_Schedule() {
	withClient(func(ctx context.Context, _ jetstream.JetStream, c *worker.Client) error {
		report := worker.Periodic{
			Args: Mail{To: "team"}, Cron: "0 30 9 * * 1-5", Name: "morning", Subject: "jobs.mail", TimeZone: "Europe/Berlin",
		}

		for range 2 {
			changed, err := c.Schedule(ctx, report)
			if err != nil {
				return err
			}

			fmt.Println("changed:", changed)
		}

		all, err := c.Schedules(ctx)
		if err != nil {
			return err
		}

		for _, s := range all {
			fmt.Println(s.Subject, "at", s.Cron, s.TimeZone)
		}
		return c.Unschedule(ctx, "jobs.mail.morning")
	})
	// Output:
	// changed: true
	// changed: false
	// jobs.mail.morning at 0 30 9 * * 1-5 Europe/Berlin
}

func ExampleClient_Cancel() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		cancel := func() {
			was, err := c.Cancel(ctx, worker.JobByKey("jobs.mail", "ada"))
			fmt.Println("was", was.State, err)
		}

		_, err := c.Insert(ctx, worker.NewJob{Subject: "jobs.mail", Delay: time.Hour, Unique: &worker.Unique{Key: "ada"}})
		if err != nil {
			return err
		}

		cancel()
		cancel()

		_, err = c.Insert(ctx, worker.NewJob{Args: Mail{To: "ada"}, Subject: "jobs.mail", Unique: &worker.Unique{Key: "ada"}})
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
	// was  worker: no such job: subject "jobs.mail.ada"
	// was delivered <nil>
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

			stored, err := c.Job(ctx, worker.JobRef{Subject: "jobs.mail.all"}) // from anywhere
			fmt.Println(stored.State, string(stored.Progress.Value), err)
			return nil
		})
	})
	// Output: running {"of":300,"sent":120} <nil>
}
