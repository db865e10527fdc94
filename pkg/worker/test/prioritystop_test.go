package test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestStopWithPrioritiesLosesNoJobAndNoAttempt stops workers of few slots again and again,
// while jobs of all priorities run, wait for a slot and are on their way.
func TestStopWithPrioritiesLosesNoJobAndNoAttempt(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const n = 120

		b := setup(t, srv)

		var (
			mu       sync.Mutex
			effects  = make(map[string]int)
			attempts = make(map[int]int)
		)

		for _, class := range classNames {
			b.publishClass(t, class, n)
		}

		for round := 0; b.left(t) > 0; round++ {
			some := make(chan struct{}, 10*n)
			cfg := b.config(t, func(c *worker.Config) { c.Concurrency, c.SoftStop = 2+round%7, -1 })
			r := runClasses(t, b.js, cfg, func(ctx context.Context, _ string, job *worker.Job[order]) error {
				defer func() { some <- struct{}{} }()

				mu.Lock()
				defer mu.Unlock()

				attempts[job.Attempt]++

				if job.Args.N%40 == 0 && job.Deliveries < 3 {
					mu.Unlock()
					<-ctx.Done()
					mu.Lock()
					return ctx.Err()
				}

				effects[job.ID]++
				return nil
			}, threeClasses...)

			for range max(1, min(b.left(t)/4, 100)) { // a round that waits for nothing stops its workers before they run
				select {
				case <-some:
				case <-time.After(20 * time.Millisecond): // paces the rounds; nothing is decided by it
				}
			}

			check.OK(t, r.wait())
		}

		if len(effects) != 3*n || len(attempts) != 1 {
			t.Errorf("%d jobs had an effect, attempts seen %v; want %d, all first", len(effects), attempts, 3*n)
		}

		for id, times := range effects {
			check.Same(t, fmt.Sprintf("job %s had effects", id), times, 1)
		}

		check.Same(t, "dead letters", len(b.letters(t)), 0)
	})
}
