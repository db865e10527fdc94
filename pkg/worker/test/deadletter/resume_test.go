package deadletter_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

func TestReplayGoesOnAtTheFailedStep(t *testing.T) {
	t.Parallel()

	edit := func(worker.DeadLetter) ([]byte, error) { return []byte(`{"edited":true}`), nil }

	for name, c := range map[string]struct {
		opts deadletter.ReplayOptions
		want int // runs of the step that did not fail
	}{
		"as it is": {want: 1},
		"edited":   {opts: deadletter.ReplayOptions{Edit: edit}, want: 2},
		"restart":  {opts: deadletter.ReplayOptions{Restart: true}, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := setup(t, nil)
			settled := make(chan worker.Settlement, 10)

			w, err := worker.New(b.js, worker.Config{
				AutoCreate: true, Consumer: "c", Hooks: worker.Hooks{Settled: func(s worker.Settlement) { settled <- s }},
				Logger: slog.New(slog.DiscardHandler), Stream: "JOBS",
			})
			check.OK(t, err)

			ran, failed := 0, 0

			err = worker.Handle(w, "jobs.>", worker.Policy{}, func(ctx context.Context, job *worker.Job[map[string]any]) error {
				err := step.Do(ctx, job, "first", func(context.Context) error {
					ran++
					return nil
				})
				if err != nil {
					return err
				}
				return step.Do(ctx, job, "second", func(context.Context) error {
					failed++
					if failed <= 2 {
						return worker.Cancel(errors.New("burnt"))
					}
					return nil
				})
			})
			check.OK(t, err)

			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)

			go func() { done <- w.Run(ctx) }()

			check.OK(t, check.Err(b.js.Publish(t.Context(), "jobs.1", []byte(`{}`))))

			s := <-settled
			check.Require(t, s.Outcome == worker.OutcomeDead, "%s: %v", s.Outcome, s.Err)

			for _, want := range []worker.Outcome{worker.OutcomeDead, worker.OutcomeCompleted} { // the second is a replay of a replay
				result, err := b.store.Replay(t.Context(), deadletter.Filter{}, c.opts)
				check.Require(t, err == nil && result.Done == 1, "replay: %+v, %v", result, err)

				s := <-settled
				check.That(t, s.Outcome == want, "replayed: %s, %v; want %s", s.Outcome, s.Err, want)

				check.That(t, want != worker.OutcomeDead || ran == c.want, "the first step ran %d times, want %d", ran, c.want)
			}

			stop()

			check.Is(t, <-done, nil)
		})
	}
}
