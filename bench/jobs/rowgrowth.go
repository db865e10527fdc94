package main

import (
	"context"
	"errors"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// jobAmongQueued is a job that is inserted and processed while others of another kind are queued.
const jobAmongQueued rig.Growth = "job_queued"

// growth measures insert and start with more and more jobs of another kind in the queue.
func growth(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	started := make(chan time.Time, 1)
	stop, err := c.work(ctx, slots, func(context.Context, string) error {
		started <- time.Now()
		return nil
	})
	if err != nil {
		return nil, err
	}
	many, n := b.n(b.queued), b.n(growthJobs)
	f, queued := rig.Figures{"growth_to": float64(many)}, 0
	for i, times := range rig.Times {
		if err = c.queue(ctx, queued, many*times/100-queued); err != nil {
			break
		}
		queued = many * times / 100
		before := rig.WorkOf(b.service)
		insert, start, failed := probe(ctx, c, i*n, n, started)
		if err = failed; err != nil {
			break
		}
		f.Since("op", b.service, before, n)
		jobAmongQueued.Set(f, times, f["op_client_cpu_us"]+f["op_server_cpu_us"])
		jobAmongQueued.Hold(f, times, b.service)
		f["growth_insert_us"], f["growth_start_us"] = rig.In("us", insert), rig.In("us", start)
	}
	return f, errors.Join(err, stop())
}
