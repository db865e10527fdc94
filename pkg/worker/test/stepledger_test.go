package test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// stepKeys is the prefix of the journals' subjects in the default bucket.
const stepKeys = "$KV.jobs.steps."

// ledger is the independent recorder: what each step returned to any handler.
type ledger struct {
	mu      sync.Mutex
	results map[string]string
	runs    map[string]int
	slow    func() // nil for no time at all
	wrong   []string
}

func newLedger() *ledger { return &ledger{results: map[string]string{}, runs: map[string]int{}} }

// run is step.Run of a function whose result is another in each execution.
func (l *ledger) run(ctx context.Context, job *worker.Job[order], name string) (string, error) {
	key := fmt.Sprintf("%s/%s", job.ID, name)

	got, err := step.Run(ctx, job, name, func(context.Context) (string, error) {
		if l.slow != nil {
			l.slow()
		}

		l.mu.Lock()
		defer l.mu.Unlock()

		l.runs[key]++
		return fmt.Sprintf("%s, execution %d", key, l.runs[key]), nil
	})
	if err != nil {
		return got, err
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	if before, ok := l.results[key]; ok && before != got {
		l.wrong = append(l.wrong, fmt.Sprintf("%s: %q after %q", key, got, before))
	}

	l.results[key] = got
	return got, nil
}

func (l *ledger) check(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, wrong := range l.wrong {
		t.Errorf("a recorded step changed: %s", wrong)
	}
}

// journals counts the messages of all journals.
func (b *bundle) journals(t testing.TB) int {
	t.Helper()

	s, err := b.js.Stream(t.Context(), "KV_jobs")
	check.OK(t, err)

	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(stepKeys+">"))
	check.OK(t, err)
	return len(info.State.Subjects)
}
