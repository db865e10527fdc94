package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

func TestStopLetsHandlersFinish(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		started := make(chan struct{}, 2)
		begun := time.Now()

		var contextErr error

		r := run(t, b.js, b.config(t), worker.Policy{}, func(ctx context.Context, _ *worker.Job[order]) error {
			started <- struct{}{}

			pass(9 * time.Second) // of 10 that SoftStop gives

			contextErr = ctx.Err()
			return nil
		})
		b.publish(t, "jobs.1", `{}`)
		<-started

		check.Is(t, r.wait(), nil)

		took := time.Since(begun)
		check.That(t, took >= 9*time.Second && took < 11*time.Second, "stopped after %s, want 9s and a second at most", took)

		if contextErr != nil || b.left(t) != 0 {
			t.Errorf("context %v, %d left; want nil, 0", contextErr, b.left(t))
		}
	})
}

func TestStopHandsBackWhatDoesNotFinish(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		started := make(chan struct{})

		var cause error

		first := run(t, b.js, b.config(t), worker.Policy{MaxAttempts: 1}, func(ctx context.Context, _ *worker.Job[order]) error {
			close(started)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		b.publish(t, "jobs.1", `{}`)
		<-started

		check.Is(t, first.wait(), nil)

		check.Is(t, cause, worker.ErrShutdown)

		assertHandedBack(t, b)
	})
}

func TestStopNamesStuckHandlersAndHandsTheirJobsBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		started := make(chan struct{})
		release := make(chan struct{})
		begun := time.Now()

		first := run(t, b.js, b.config(t), worker.Policy{MaxAttempts: 1}, func(context.Context, *worker.Job[order]) error {
			close(started)
			<-release
			return nil
		})
		b.publish(t, "jobs.1", `{}`)
		<-started

		err := first.wait()

		var stuck *worker.StuckError
		check.That(t, errors.As(err, &stuck) && len(stuck.Jobs) == 1 && stuck.Jobs[0].Subject == "jobs.1",
			"Run: %v, want a StuckError that names jobs.1", err)

		if took := time.Since(begun); took < 15*time.Second || took >= 17*time.Second {
			t.Errorf("stopped after %s, want 15s, SoftStop and HardStop, and a second at most", took)
		}

		assertHandedBack(t, b)
		close(release) // its result is dropped; the job was completed elsewhere
	})
}

// TestJobThatTheLastPullBringsIsHandedBackOnce publishes while a stopping worker's last
// request is still at the server: the job comes to this worker, and must come here once.
func TestJobThatTheLastPullBringsIsHandedBackOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		r := run(t, b.js, b.config(t), worker.Policy{}, func(context.Context, *worker.Job[order]) error {
			t.Error("a stopping worker started a job")
			return nil
		})
		<-b.ready
		pass(500 * time.Millisecond) // the request is at the server, half of its time left
		r.stop()
		pass(100 * time.Millisecond)
		b.publish(t, "jobs.1", `{}`)

		check.Is(t, r.wait(), nil)

		assertHandedBack(t, b)
	})
}

// assertHandedBack checks that another worker gets the job at once, as its first attempt.
func assertHandedBack(t *testing.T, b *bundle) {
	t.Helper()

	again := make(chan *worker.Job[order], 1)
	stopped := time.Now()
	r := run(t, b.js, b.config(t), worker.Policy{MaxAttempts: 1}, tell(again, theJob))

	job := receive(t, again, "the job")
	waited := time.Since(stopped)
	check.That(t, waited <= time.Second, "started elsewhere after %s, want at once", waited)

	check.That(t, job.Attempt == 1 && job.Deliveries == 2,
		"attempt %d, delivery %d; want 1, 2: a shutdown uses no attempt", job.Attempt, job.Deliveries)

	check.Is(t, r.wait(), nil)

	check.Same(t, "messages left", b.left(t), 0)
}

// TestStopInFlightLosesNoJobAndNoAttempt stops a worker again and again while jobs flow,
// so that some are running, some on the wire and some still queued.
func TestStopInFlightLosesNoJobAndNoAttempt(t *testing.T) {
	t.Parallel()

	const (
		inFlight = 100
		n        = 1000
	)

	b := setup(t, nil)
	b.publishN(t, n)

	var mu sync.Mutex

	effects := make(map[string]int)
	attempts := make(map[int]int)
	log := &events{}

	for left := b.left(t); left > 0; left = b.left(t) {
		var once sync.Once

		first, some := make(chan struct{}), make(chan struct{})
		count := 0
		cfg := b.config(t, func(c *worker.Config) { c.Concurrency, c.Logger, c.SoftStop = inFlight, log.logger(), -1 })
		r := run(t, b.js, cfg, worker.Policy{MaxAttempts: 1}, func(ctx context.Context, job *worker.Job[order]) error {
			mu.Lock()
			defer mu.Unlock()

			attempts[job.Attempt]++
			count++

			if count == 1 {
				close(first)
			}

			if count > inFlight {
				once.Do(func() { close(some) })
			}

			if job.Args.N%3 == job.Deliveries%3 && job.Deliveries < 4 {
				<-ctx.Done() // holds the lock: the others wait in flight
				return ctx.Err()
			}

			effects[job.ID]++
			if left <= inFlight && count == int(left) {
				once.Do(func() { close(some) })
			}
			return nil
		})

		receive(t, first, "a job")

		select {
		case <-some:
		case <-time.After(20 * time.Millisecond): // paces the rounds; nothing is decided by it
		}

		check.OK(t, r.wait())
	}

	check.That(t, len(effects) == n && len(attempts) == 1 && attempts[1] >= n,
		"%d jobs had an effect, attempts seen %v; want %d, all first", len(effects), attempts, n)

	for id, times := range effects {
		check.Same(t, fmt.Sprintf("job %s had effects", id), times, 1)
	}

	letters := b.letters(t)
	check.That(t, len(letters) == 0, "%d dead letters, want none; events: %v", len(letters), log.seen)
}

// TestStopWithManyInFlightKeepsItsDeadline stops a worker that runs 1,000 jobs. A third of
// them finish in time, a third when their context ends, and a third never do.
func TestStopWithManyInFlightKeepsItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		const n = 1000

		b.publishN(t, n)

		var (
			mu      sync.Mutex
			effects = make(map[string]int)
		)

		effect := func(job *worker.Job[order]) {
			mu.Lock()
			defer mu.Unlock()

			effects[job.ID]++
		}

		started := make(chan struct{}, n)
		release := make(chan struct{})
		cfg := b.config(t, func(c *worker.Config) { c.Concurrency, c.HardStop, c.SoftStop = n, 5*time.Second, 10*time.Second })
		first := run(t, b.js, cfg, worker.Policy{MaxAttempts: 1}, func(ctx context.Context, job *worker.Job[order]) error {
			started <- struct{}{}

			switch job.Args.N % 3 {
			case 0:
				pass(9 * time.Second)
				effect(job)
				return nil
			case 1:
				<-ctx.Done()
				return ctx.Err()
			default:
				<-release
				return nil
			}
		})

		for range n {
			<-started
		}

		begun := time.Now()
		err := first.wait()

		if took := time.Since(begun); took < 15*time.Second || took > 17*time.Second {
			t.Errorf("stopped after %s, want 15s, SoftStop and HardStop, and a second at most", took)
		}

		var stuck *worker.StuckError
		check.That(t, errors.As(err, &stuck) && len(stuck.Jobs) == n/3, "Run: %v, want a StuckError of %d jobs", err, n/3)

		check.Same(t, "messages left", b.left(t), n-n/3-1)

		// Another worker gets the others at once, each as its first attempt.
		settled := make(chan worker.Settlement, n)
		begun = time.Now()
		cfg.Concurrency, cfg.Hooks.Settled = 100, func(s worker.Settlement) { settled <- s }
		run(t, b.js, cfg, worker.Policy{MaxAttempts: 1}, func(_ context.Context, job *worker.Job[order]) error {
			effect(job)
			return nil
		})

		for range n - n/3 - 1 {
			s := <-settled
			check.That(t, s.Outcome == worker.OutcomeCompleted && s.Attempt == 1, "%s: %s in attempt %d", s.ID, s.Outcome, s.Attempt)
		}

		took := time.Since(begun)
		check.That(t, took <= time.Second, "the others took %s to come, want them at once", took)

		close(release)

		for id, times := range effects {
			check.Same(t, fmt.Sprintf("job %s had effects", id), times, 1)
		}

		if left := b.left(t); left != 0 || len(effects) != n || len(b.letters(t)) != 0 {
			t.Errorf("%d left, %d effects, %d letters; want 0, %d, 0", left, len(effects), len(b.letters(t)), n)
		}
	})
}
