package test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestScheduleThatMayBeFiringIsNotReplaced gives up a replacement before the time of the schedule that it found, within 300
// ms of it. The schedule is still there, and its job runs: had the client replaced it by then, and died before it looked
// again, there would be two jobs.
func TestScheduleThatMayBeFiringIsNotReplaced(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := keyed(t, srv)
		c := client(t, b.js)
		ran, settled := make(chan int, 10), make(chan struct{}, 10)
		cfg := b.config(t, func(c *worker.Config) {
			c.Hooks.Settled = func(worker.Settlement) { settled <- struct{}{} }
		})
		run(t, b.js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			ran <- job.Args.N
			return nil
		})

		for _, left := range []time.Duration{290 * time.Millisecond, 200 * time.Millisecond, 100 * time.Millisecond} {
			if r := replace(t, c, 1, 10*time.Second, 0); r.Duplicate {
				t.Fatalf("%s: %+v", left, r)
			}

			pass(10*time.Second - left)

			ctx, cancel := context.WithTimeout(t.Context(), left-20*time.Millisecond)

			_, err := c.Replace(ctx, worker.NewJob{
				Args: order{N: 2}, Delay: time.Hour, Subject: "jobs.mail", Unique: &worker.Unique{Key: "u17"},
			})

			cancel()

			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s before its time: %v, want that it is waited for", left, err)
			}

			check.Same(t, fmt.Sprintf("%s before its time: job ran", left), <-ran, 1)

			<-settled // until then it is in the way of the next
		}
	})
}
