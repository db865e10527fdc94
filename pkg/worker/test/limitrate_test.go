package test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestRateIsKept counts the starts in every window of Per, over two workers.
func TestRateIsKept(t *testing.T) {
	for _, l := range []worker.Limit{
		{Name: "slow", Per: time.Minute, Rate: 10},
		{Burst: 5, Name: "bursts", Per: time.Second, Rate: 3},
		{Burst: 3, Name: "fast", Per: time.Second, Rate: 100},
		{Burst: 4, Concurrency: 2, Name: "both", Per: time.Second, Rate: 10},
	} {
		natstest.RunBubble(t, l.Name, func(t *testing.T, srv *natsrun.Server) { rateIsKept(t, srv, l) })
	}
}

func rateIsKept(t *testing.T, srv *natsrun.Server, l worker.Limit) {
	t.Helper()

	const jobs = 60

	b := setup(t, srv)
	b.publishN(t, jobs)

	var (
		mu     sync.Mutex
		starts []time.Time
	)

	policy := worker.Policy{Limits: []worker.Limit{l}, MaxAttempts: 1}
	cfg := b.config(t, func(cfg *worker.Config) { cfg.MaxWaiting = jobs / 4 })

	for range 2 {
		_, js := natstest.Connect(t, srv)
		run(t, js, cfg, policy, func(_ context.Context, job *worker.Job[order]) error {
			mu.Lock()
			starts = append(starts, time.Now())
			mu.Unlock()

			check.Same(t, "attempt", job.Attempt, 1)
			return nil
		})
	}

	for b.left(t) > 0 {
		pass(time.Second)
	}

	slices.SortFunc(starts, time.Time.Compare)

	most := 0

	for i, first := range starts {
		n := 0
		for n < len(starts)-i && starts[i+n].Sub(first) < l.Per {
			n++
		}

		most = max(most, n)
	}

	took := starts[len(starts)-1].Sub(starts[0])
	fewest := time.Duration(jobs-max(l.Burst, 1)) * l.Per / time.Duration(l.Rate)

	t.Logf("%d starts in %s (at the rate: %s), at most %d in %s", len(starts), took, fewest, most, l.Per)

	if want := l.Rate + max(l.Burst, 1); most > want {
		t.Errorf("%d starts in %s, want at most %d", most, l.Per, want)
	}

	if took < fewest-time.Millisecond {
		t.Errorf("%d starts took %s, want at least %s", len(starts), took, fewest)
	}

	if took > 2*fewest+5*time.Second {
		t.Errorf("%d starts took %s, want about %s", len(starts), took, fewest)
	}
}
