package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/internal/retry"
)

// Operations of a row at weight 1 and scale 1.
const (
	allJobs    = 20_000
	startJobs  = 1_000
	stepJobs   = 5_000
	growthJobs = 6_000
	rate       = 200 // a second
)

// deliveries counts the runs of each job, in place of the remote service.
type deliveries struct {
	all  chan struct{} // closed when every job has run
	left atomic.Int64
	runs []atomic.Int32
}

func newDeliveries(n int) *deliveries {
	l := &deliveries{all: make(chan struct{}), runs: make([]atomic.Int32, n)}
	l.left.Store(int64(n))
	return l
}

func (l *deliveries) ran(id string) error {
	var i int
	if _, err := fmt.Sscanf(id, "j%d", &i); err != nil || i >= len(l.runs) {
		return fmt.Errorf("job %q is not one of ours", id)
	}
	if l.runs[i].Add(1) == 1 && l.left.Add(-1) == 0 {
		close(l.all)
	}
	return nil
}

func name(i int) string { return fmt.Sprintf("j%d", i) }

// count adds the numbers of jobs that ran more than once, and that never ran.
func (l *deliveries) count(row string, f rig.Figures) {
	double, lost := 0, 0
	for i := range l.runs {
		switch n := l.runs[i].Load(); {
		case n == 0:
			lost++
		case n > 1:
			double++
		}
	}
	f[row+"_double"], f[row+"_lost"] = float64(double), float64(lost)
}

// insertAll makes 32 producers insert n jobs, one at a time each.
func insertAll(ctx context.Context, c *client, from, n int) error {
	return rig.Each(producers, n, func(i int) error { return c.insert(ctx, name(from+i)) })
}

// finish waits until every job has run and the system has recorded all as completed.
func finish(ctx context.Context, c *client, l *deliveries) error {
	select {
	case <-l.all:
	case <-ctx.Done():
		return fmt.Errorf("%d jobs did not run: %w", l.left.Load(), ctx.Err())
	}
	for {
		n, err := c.recorded(ctx)
		if err == nil && n >= len(l.runs) {
			return nil
		}
		if !retry.Sleep(ctx, time.Millisecond) {
			return errors.Join(fmt.Errorf("%d of %d jobs recorded: %w", n, len(l.runs), ctx.Err()), err)
		}
	}
}

// flow inserts n jobs and works them at the same time. Its figures are the jobs a second and the processor time of both
// sides for a job.
func (b *bench) flow(ctx context.Context, row, prefix string, n int, work func(*client) works) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	l := newDeliveries(n)
	stop, err := work(c)(ctx, slots, func(_ context.Context, id string) error { return l.ran(id) })
	if err != nil {
		return nil, err
	}
	f := rig.Figures{}
	before := rig.WorkOf(b.service)
	began := time.Now()
	if err = insertAll(ctx, c, 0, n); err == nil {
		err = finish(ctx, c, l)
	}
	f[prefix+"jobs_per_s"] = float64(n) / time.Since(began).Seconds()
	f.Since(row, b.service, before, n)
	err = errors.Join(err, stop())
	l.count(row, f)
	client, server := f[row+"_client_cpu_us"], f[row+"_server_cpu_us"]
	delete(f, row+"_client_cpu_us")
	delete(f, row+"_server_cpu_us")
	f[prefix+"cpu_us_per_job"], f[prefix+"server_cpu_us_per_job"] = client+server, server
	return f, err
}

func throughput(ctx context.Context, b *bench) (rig.Figures, error) {
	return b.flow(ctx, "jobs", "", b.n(allJobs), func(c *client) works { return c.work })
}

func steps(ctx context.Context, b *bench) (rig.Figures, error) {
	return b.flow(ctx, "five_step", "five_step_", b.n(stepJobs), func(c *client) works { return c.steps })
}

// start inserts a job each 5 ms, even if the previous insert has no answer yet.
func start(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	n := max(100, int(startJobs*b.scale))
	l := newDeliveries(n)
	begun, taken := make([]atomic.Int64, n), make([]atomic.Int64, n)
	stop, err := c.work(ctx, slots, func(_ context.Context, id string) error {
		now := time.Now().UnixNano()
		var i int
		if _, err := fmt.Sscanf(id, "j%d", &i); err == nil && i < n {
			taken[i].CompareAndSwap(0, now-begun[i].Load())
		}
		return l.ran(id)
	})
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	var all sync.WaitGroup
	failed := make(chan error, n)
	for i := range n {
		<-tick.C
		all.Go(func() {
			begun[i].Store(time.Now().UnixNano())
			if err := c.insert(ctx, name(i)); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	close(failed)
	err = <-failed
	if err == nil {
		err = finish(ctx, c, l)
	}
	f := rig.Figures{}
	waits := make([]time.Duration, n)
	for i := range waits {
		waits[i] = time.Duration(taken[i].Load())
	}
	f.Quantiles("start", "ms", waits)
	l.count("start", f)
	return f, errors.Join(err, stop())
}

// probe inserts n jobs one after the other and returns the medians until the answer and until the start.
func probe(ctx context.Context, c *client, from, n int, started <-chan time.Time) (insert, start time.Duration, err error) {
	inserts, starts := make([]time.Duration, n), make([]time.Duration, n)
	for i := range n {
		began := time.Now()
		if err := c.insert(ctx, name(from+i)); err != nil {
			return 0, 0, err
		}
		inserts[i] = time.Since(began)
		select {
		case at := <-started:
			starts[i] = at.Sub(began)
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
	slices.Sort(inserts)
	slices.Sort(starts)
	return inserts[n/2], starts[n/2], nil
}
