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
	err := func() error {
		srv, err := natsrun.Start(natsrun.Config{})
		if err != nil {
			return err
		}
		defer srv.Stop()

		nc, err := srv.Connect()
		if err != nil {
			return err
		}
		defer nc.Close()

		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}

		ctx, cancel := context.WithTimeout(context.Background(), patience())
		defer cancel()

		if _, err := js.CreateStream(ctx, worker.StreamConfig("JOBS", "jobs.>")); err != nil {
			return err
		}
		return example(ctx, js)
	}()
	if err != nil {
		fmt.Println(err) //nolint:forbidigo // part of an example's output
	}
}

// withClient gives an example a client as well.
func withClient(example func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error) {
	withServer(func(ctx context.Context, js jetstream.JetStream) error {
		c, err := worker.NewClient(js, worker.ClientConfig{Stream: "JOBS"})
		if err != nil {
			return err
		}
		return example(ctx, js, c)
	})
}

// workOne works jobs until one is settled.
func workOne(ctx context.Context, js jetstream.JetStream, h worker.Handler[Mail]) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	w, err := worker.New(js, worker.Config{
		AckWait: time.Second, AutoCreate: true, Concurrency: 1, Consumer: "mailer", Stream: "JOBS", Logger: slog.New(slog.DiscardHandler),
		Hooks: worker.Hooks{Settled: func(worker.Settlement) { stop() }},
	})
	if err != nil {
		return err
	}

	if err := worker.Handle(w, "jobs.mail.>", worker.Policy{}, h); err != nil {
		return err
	}
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

func ExampleClient_Insert_delayed() {
	withClient(func(ctx context.Context, js jetstream.JetStream, c *worker.Client) error {
		begun := time.Now()

		receipt, err := c.Insert(ctx, worker.NewJob{Args: Mail{}, Subject: "jobs.mail.reminder", Delay: 300 * time.Millisecond})
		if err != nil {
			return err
		}

		fmt.Println(receipt.State)
		return workOne(ctx, js, func(context.Context, *worker.Job[Mail]) error {
			fmt.Println("not before it is due:", time.Since(begun) >= 300*time.Millisecond)
			return nil
		})
	})
	// Output:
	// scheduled
	// not before it is due: true
}

func ExampleClient_Job() {
	withClient(func(ctx context.Context, _ jetstream.JetStream, c *worker.Client) error {
		due := time.Now().Add(time.Hour)
		if _, err := c.Insert(ctx, worker.NewJob{Subject: "jobs.mail", At: due, Unique: &worker.Unique{Key: "u17"}}); err != nil {
			return err
		}

		job, err := c.Job(ctx, worker.JobRef{Key: "u17", Subject: "jobs.mail"})
		fmt.Println(job.State, job.Due.Equal(due), err)

		_, err = c.Job(ctx, worker.JobRef{Key: "u18", Subject: "jobs.mail"})
		fmt.Println(err)
		return nil
	})
	// Output:
	// scheduled true <nil>
	// worker: no such job: subject "jobs.mail", key "u18"
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
			was, err := c.Cancel(ctx, worker.JobRef{Key: "ada", Subject: "jobs.mail"})
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
	// was  worker: no such job: subject "jobs.mail", key "ada"
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
