package test

import (
	"context"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

func TestRunWorksEveryJobOnce(t *testing.T) {
	t.Parallel()

	const n = 500

	b := setup(t, nil)
	b.publishN(t, n)

	jobs := make(chan *worker.Job[order], n+1)
	settled := make(chan worker.Settlement, n+1)
	cfg := b.config(t, func(c *worker.Config) { c.Hooks.Settled = func(s worker.Settlement) { settled <- s } })

	r := run(t, b.js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
		jobs <- job
		return nil
	})

	seen := make(map[int]int)
	for range n {
		job := receive(t, jobs, "a job")
		seen[job.Args.N]++
	}

	for range n {
		s := receive(t, settled, "a settlement")
		check.That(t, s.Outcome == worker.OutcomeCompleted, "job %s: outcome %s, want completed", s.ID, s.Outcome)
	}

	check.Is(t, r.wait(), nil)

	if len(seen) != n || len(jobs) != 0 || b.left(t) != 0 {
		t.Errorf("%d distinct jobs, %d more, %d left; want %d, 0, 0", len(seen), len(jobs), b.left(t), n)
	}
}
