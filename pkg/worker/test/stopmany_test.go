package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestStopWithManyInFlightKeepsItsDeadline stops a worker that runs 1,000 jobs. A third of
// them finish in time, a third when their context ends, and a third never do.
func TestStopWithManyInFlightKeepsItsDeadline(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const n = 1000

		b := setup(t, srv)
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
		if !errors.As(err, &stuck) || len(stuck.Jobs) != n/3 {
			t.Errorf("Run: %v, want a StuckError of %d jobs", err, n/3)
		}

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
			if s := <-settled; s.Outcome != worker.OutcomeCompleted || s.Attempt != 1 {
				t.Errorf("%s: %s in attempt %d", s.ID, s.Outcome, s.Attempt)
			}
		}

		if took := time.Since(begun); took > time.Second {
			t.Errorf("the others took %s to come, want them at once", took)
		}

		close(release)

		for id, times := range effects {
			check.Same(t, fmt.Sprintf("job %s had effects", id), times, 1)
		}

		if left := b.left(t); left != 0 || len(effects) != n || len(b.letters(t)) != 0 {
			t.Errorf("%d left, %d effects, %d letters; want 0, %d, 0", left, len(effects), len(b.letters(t)), n)
		}
	})
}
