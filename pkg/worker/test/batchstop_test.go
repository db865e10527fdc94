package test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestStopHandsBatchesBack stops a worker while a batch waits for more jobs, and while one
// runs. Another worker gets the jobs at once, each as its first attempt.
func TestStopHandsBatchesBack(t *testing.T) {
	for name, size := range map[string]int{"waiting": 10, "running": 4} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				b := setup(t, srv)
				settled, hook := settled(20)
				started := false

				r := runBatch(t, b.js, b.config(t, hook), worker.Policy{MaxAttempts: 1}, worker.BatchPolicy{Size: size, Wait: time.Hour},
					func(ctx context.Context, _ []*worker.Job[order]) error {
						started = true

						<-ctx.Done()

						if !errors.Is(context.Cause(ctx), worker.ErrShutdown) {
							t.Errorf("the context's cause is %v, want ErrShutdown", context.Cause(ctx))
						}

						return ctx.Err()
					})
				b.publishN(t, 4)
				pass(10 * time.Minute)

				begun := time.Now()

				if err := r.wait(); err != nil {
					t.Errorf("Run: %v", err)
				}

				if took := time.Since(begun); started && took > 12*time.Second || !started && took > time.Second || started != (name == "running") {
					t.Errorf("started %t, stopped after %s", started, took)
				}

				for range 4 {
					if s := <-settled; s.Outcome != worker.OutcomeHandedBack {
						t.Errorf("%s: %s, want handed back", s.Subject, s.Outcome)
					}
				}

				begun = time.Now()
				again := make(chan []*worker.Job[order], 10)
				runBatch(t, b.js, b.config(t), worker.Policy{MaxAttempts: 1}, worker.BatchPolicy{Size: 4, Wait: time.Hour},
					func(_ context.Context, jobs []*worker.Job[order]) error {
						again <- jobs

						return nil
					})

				for _, job := range <-again {
					if job.Attempt != 1 || job.Deliveries != 2 || time.Since(begun) > time.Second {
						t.Errorf("attempt %d, delivery %d after %s; want 1, 2, at once", job.Attempt, job.Deliveries, time.Since(begun))
					}
				}
			})
		})
	}
}

// TestKilledBatchRunsAgain kills the process of a batch: its jobs run again, and each has
// used an attempt.
func TestKilledBatchRunsAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		nc, js := natstest.Connect(t, srv)
		started, dead := make(chan struct{}), make(chan struct{})
		size := worker.BatchPolicy{Size: 4, Wait: time.Hour}
		first := runBatch(t, js, b.config(t, stopAtOnce), worker.Policy{}, size, func(context.Context, []*worker.Job[order]) error {
			close(started)
			<-dead

			return nil
		})
		b.publishN(t, 4)
		<-started
		pass(time.Hour) // many times AckWait: heartbeats keep all of them
		nc.Close()

		crashed := time.Now()

		close(dead)

		if err := first.wait(); !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("Run: %v, want ErrConnectionClosed", err)
		}

		again := make(chan []*worker.Job[order], 10)
		runBatch(t, b.js, b.config(t), worker.Policy{}, size, func(_ context.Context, jobs []*worker.Job[order]) error {
			again <- jobs

			return nil
		})

		jobs := <-again
		if waited := time.Since(crashed); waited >= 10*time.Second || len(jobs) != 4 {
			t.Errorf("%d jobs after %s, want 4 in less than 2 AckWaits of 5s", len(jobs), waited)
		}

		for _, job := range jobs {
			if job.Attempt != 2 || job.Deliveries != 2 {
				t.Errorf("attempt %d, delivery %d; want 2, 2: a crash uses one", job.Attempt, job.Deliveries)
			}
		}
	})
}

// TestCancelledJobLeavesItsBatch cancels a job that waits for others, which then wait for
// as long as they would have.
func TestCancelledJobLeavesItsBatch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := keyed(t, srv)
		c := client(t, b.js)
		calls := make(chan []int, 10)
		settled, hook := settled(10)
		runBatch(t, b.js, b.config(t, hook), worker.Policy{}, worker.BatchPolicy{Size: 10, Wait: time.Minute},
			func(_ context.Context, jobs []*worker.Job[order]) error {
				calls <- numbers(jobs)

				return nil
			})

		for i, key := range []string{"a", "b"} {
			insert(t, c, worker.NewJob{Args: order{N: i}, Subject: "jobs.c", Unique: &worker.Unique{Key: key}})
		}

		pass(10 * time.Second)

		if _, err := c.Cancel(t.Context(), "jobs.c", "a"); err != nil {
			t.Fatal(err)
		}

		begun := time.Now()

		if s := <-settled; s.Outcome != worker.OutcomeCancelled || s.Subject != "jobs.c.a" || time.Since(begun) > 2*time.Second {
			t.Errorf("%s: %s after %s, want it cancelled at the next heartbeat", s.Subject, s.Outcome, time.Since(begun))
		}

		if jobs := <-calls; len(jobs) != 1 || jobs[0] != 1 {
			t.Errorf("batch %v, want 1 alone", jobs)
		}
	})
}

// TestBatchOfLimitedJobs has jobs that need a permit of which there are two: a batch has no
// more of them, however many it could take.
func TestBatchOfLimitedJobs(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const n = 6

		b := setup(t, srv)
		settled, hook := settled(n)
		policy := worker.Policy{Limits: []worker.Limit{{Concurrency: 2, Name: "two"}}}
		sizes := make(chan int, n)
		runBatch(t, b.js, b.config(t, hook), policy, worker.BatchPolicy{Size: 4, Wait: time.Second},
			func(_ context.Context, jobs []*worker.Job[order]) error {
				sizes <- len(jobs)

				return nil
			})
		b.publishN(t, n)

		for range n {
			if s := <-settled; s.Outcome != worker.OutcomeCompleted || s.Attempt != 1 {
				t.Errorf("%s: %s in attempt %d, want completed in the first", s.Subject, s.Outcome, s.Attempt)
			}
		}

		for len(sizes) > 0 {
			if size := <-sizes; size > 2 {
				t.Errorf("a batch of %d, want at most the 2 that may run", size)
			}
		}
	})
}
