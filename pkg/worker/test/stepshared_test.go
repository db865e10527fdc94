package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// openFlight gives a worker process its Flight.
func openFlight(t testing.TB, srv *natsrun.Server) *flight.Flight {
	t.Helper()

	_, js := natstest.Connect(t, srv)
	if err := kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: "shared"}); err != nil {
		t.Fatal(err)
	}

	f, err := flight.New(t.Context(), js, flight.Config{Bucket: "shared", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(f.Close)

	return f
}

func TestSharedStepRunsOnceForManyJobs(t *testing.T) {
	t.Parallel()

	const jobs = 20

	b := setup(t, nil)

	var (
		mu   sync.Mutex
		runs int
	)

	done := make(chan worker.Settlement, jobs)
	large := incompressible(make([]byte, 100<<10))

	for range 2 { // processes
		f := openFlight(t, b.srv)
		_, js := natstest.Connect(t, b.srv)
		cfg := b.config(t, func(c *worker.Config) {
			c.Concurrency, c.Hooks.Settled = jobs/4, func(s worker.Settlement) { done <- s }
		})
		run(t, js, cfg, worker.Policy{MaxAttempts: 1}, func(ctx context.Context, job *worker.Job[order]) error {
			got, err := step.Shared(ctx, job, "transcript", step.Source{Flight: f, Key: "video"}, func(context.Context) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()

				runs++

				return large, nil
			})
			if err == nil && !bytes.Equal(got, large) {
				err = fmt.Errorf("%d bytes", len(got))
			}

			return err
		})
	}

	b.publishN(t, jobs)

	for range jobs {
		if s := receive(t, done, "a settlement"); s.Outcome != worker.OutcomeCompleted {
			t.Errorf("%s: %s, %v", s.ID, s.Outcome, s.Err)
		}
	}

	if runs != 1 {
		t.Errorf("it ran %d times for %d jobs", runs, jobs)
	}
}

// TestSharedStepOutlivesTheCache retries a job when the shared result has expired and
// another job has made a new one.
func TestSharedStepOutlivesTheCache(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		f := openFlight(t, srv)
		done := make(chan worker.Settlement, 10)
		cfg := b.config(t, func(c *worker.Config) { c.Hooks.Settled = func(s worker.Settlement) { done <- s } })
		runs := 0
		got := map[string][]int{}
		source := step.Source{Flight: f, Key: "rate", Options: flight.DoOptions{TTL: time.Minute}}

		run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
			rate, err := step.Shared(ctx, job, "rate", source, func(context.Context) (int, error) {
				runs++

				return runs, nil
			})
			if err != nil {
				return err
			}

			got[job.Subject] = append(got[job.Subject], rate)

			if job.Subject == "jobs.first" && job.Attempt == 1 {
				return worker.Retry(10*time.Minute, errors.New("later"))
			}

			return nil
		})
		b.publish(t, "jobs.first", `{}`)
		<-done
		b.publish(t, "jobs.soon", `{}`)
		<-done
		pass(5 * time.Minute)
		b.publish(t, "jobs.late", `{}`)
		<-done
		<-done

		if want := "map[jobs.first:[1 1] jobs.late:[2] jobs.soon:[1]]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}

		slot, err := f.Get(t.Context(), "rate")
		if err != nil || slot.State == flight.Done && slot.Job != "JOBS:3" {
			t.Errorf("the result is of job %q, %v; want JOBS:3", slot.Job, err)
		}
	})
}

func TestSharedStepFails(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	f := openFlight(t, b.srv)
	job := &worker.Job[order]{}
	ctx := step.NewMemory().Attempt(t.Context())
	fail := func(context.Context) (int, error) { return 0, io.ErrUnexpectedEOF }

	if _, err := step.Shared(ctx, job, "a", step.Source{Flight: f, Key: "k"}, fail); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, want the error of the function", err)
	}

	if _, err := step.Shared(ctx, job, "a", step.Source{Key: "k"}, fail); !errors.Is(err, step.ErrMisuse) {
		t.Errorf("without a Flight: %v, want ErrMisuse", err)
	}

	if _, err := step.Shared(ctx, job, "a", step.Source{Flight: f, Key: "not a key"}, fail); !errors.Is(err, kvlock.ErrInvalidKey) {
		t.Errorf("%v, want ErrInvalidKey", err)
	}

	got, err := step.Shared(ctx, job, "a", step.Source{Flight: f, Key: "k"}, func(context.Context) (int, error) { return 7, nil })
	if err != nil || got != 7 {
		t.Errorf("then: %d, %v; want 7: a failure is not recorded", got, err)
	}

	text, err := step.Shared(ctx, job, "b", step.Source{Flight: f, Key: "k"}, func(context.Context) (string, error) { return "", nil })
	if err == nil {
		t.Errorf("a result of another type was taken for %q", text)
	}
}
