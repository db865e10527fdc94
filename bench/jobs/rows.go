package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/internal/retry"
)

func everybody(contestant) bool    { return true }
func stepping(who contestant) bool { return offers[who.Name].steps != nil }
func growing(who contestant) bool  { return offers[who.Name].queue != nil }

// leasing reports whether the restart of a job can be waited for.
func (o options) leasing(who contestant) bool {
	return who.lease > 0 && (o.slow || who.lease <= ackWait)
}

func effects(name string) []rig.Column {
	return []rig.Column{
		{Figure: name + "_double", Title: "double", Format: "%.0f"},
		{Figure: name + "_lost", Title: "lost", Format: "%.0f"},
	}
}

// measured runs a row; ran runs it for a contestant that takes part.
type (
	measured = func(context.Context, *bench) (rig.Figures, error)
	ran      = func(context.Context, contestant, *rig.Service) (rig.Figures, error)
)

// rows returns all measurements, in the order of the tables.
func rows(o options) []rig.Row[contestant] {
	run := func(of measured) ran {
		return func(ctx context.Context, who contestant, on *rig.Service) (rig.Figures, error) {
			b := newBench(o, who, on)
			defer b.close()
			return of(ctx, b)
		}
	}
	return []rig.Row[contestant]{
		{
			Name: "jobs", Title: "Unique no-op jobs, inserted one at a time by 32 producers and worked in 100 slots until the system has recorded each",
			Run: run(throughput),
			Columns: slices.Concat([]rig.Column{
				{Figure: "jobs_per_s", Title: "jobs/s", Format: "%.0f", Spread: true},
				{Figure: "over_raw", Title: "of raw", Format: "%.2f", Spread: true},
				{Figure: "cpu_us_per_job", Title: "CPU µs/job", Format: "%.0f", Spread: true},
				{Figure: "server_cpu_us_per_job", Title: "server's", Format: "%.0f"},
			}, effects("jobs")),
		},
		{
			Name: "start", Title: "From the call of insert to the start of the job, at 200 jobs/s",
			Run: run(start),
			Columns: slices.Concat([]rig.Column{
				{Figure: "start_p50_ms", Title: "p50 ms", Format: "%.2f", Spread: true},
				{Figure: "start_p99_ms", Title: "p99 ms", Format: "%.2f", Spread: true},
			}, effects("start")),
		},
		{
			Name: "steps", Title: "Jobs of five steps that do nothing, each recorded before the next begins",
			Needs: stepping, Run: run(steps),
			Columns: slices.Concat([]rig.Column{
				{Figure: "five_step_jobs_per_s", Title: "jobs/s", Format: "%.0f", Spread: true},
				{Figure: "five_step_cpu_us_per_job", Title: "CPU µs/job", Format: "%.0f", Spread: true},
			}, effects("five_step")),
		},
		{
			Name: "restart", Title: "From the kill -9 of a worker in mid-job until the job starts on another",
			Needs: o.leasing, Run: run(restart), Once: true,
			Columns: []rig.Column{
				{Figure: "restart_ms", Title: "ms", Format: "%.0f"},
				{Figure: "restart_over_ackwait", Title: "of AckWait, or what is like it", Format: "%.2f"},
			},
		},
		{
			Name: "growth", Title: "Insert and start of a job while others of another kind are queued: a hundredth, a tenth and all of --queued",
			Needs: growing, Run: run(growth), Once: true,
			Columns: slices.Concat([]rig.Column{
				{Figure: "growth_to", Title: "to", Format: "%.0f"},
				{Figure: "growth_insert_us", Title: "insert p50 µs", Format: "%.0f"},
				{Figure: "growth_start_us", Title: "start p50 µs", Format: "%.0f"},
			}, jobAmongQueued.Columns("job"), jobAmongQueued.Memory()),
		},
	}
}

// childRole is the role of a worker in its own process. It reads its task as JSON.
const childRole = "worker"

// task is the input of that worker.
type task struct {
	Contestant string
	Settings   settings
}

// serveTask works jobs that never end, and prints a line at the start of each.
func serveTask(ctx context.Context, t task) error {
	at := slices.IndexFunc(field(), func(who contestant) bool { return who.Name == t.Contestant })
	c, err := field()[at].open(ctx, t.Settings)
	if err != nil {
		return err
	}
	_, err = c.work(ctx, 1, func(ctx context.Context, _ string) error {
		fmt.Println("started")
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// restart measures the time from the kill -9 of a worker in mid-job until the job starts on another worker.
func restart(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	t := task{Contestant: b.contestant.Name, Settings: b.settings}
	t.Settings.Old = true
	p, err := rig.StartTask(childRole, t)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	if err := c.insert(ctx, name(0)); err != nil {
		return nil, err
	}
	if _, err := p.Line(ctx); err != nil {
		return nil, err
	}
	started := make(chan time.Time, 1)
	stop, err := c.work(ctx, 1, func(context.Context, string) error {
		select {
		case started <- time.Now():
		default:
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	retry.Sleep(ctx, b.contestant.lease/2) // to the middle between two signs of life, if there are any
	killed := time.Now()
	p.Kill()
	select {
	case at := <-started:
		taken := at.Sub(killed)
		return rig.Figures{
			"restart_ms": rig.In("ms", taken), "restart_over_ackwait": float64(taken) / float64(b.contestant.lease),
		}, stop()
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("the job did not start again: %w", ctx.Err()), stop())
	}
}

// timeout bounds one row of one contestant. The job of a dead worker of asynq takes a minute.
const timeout = 3 * time.Minute

// bench is one row of one contestant in one round.
type bench struct {
	contestant contestant
	opened     []*client
	queued     int
	scale      float64
	service    *rig.Service
	settings   settings
}

// queues numbers the queues, so that each is new.
var queues int

// n scales a number of operations.
func (b *bench) n(n int) int { return max(100, int(float64(n)*b.scale*b.contestant.weight)) }

// client opens a client, which is closed when the row is over.
func (b *bench) client(ctx context.Context) (*client, error) {
	c, err := b.contestant.open(ctx, b.settings)
	if err != nil {
		return nil, err
	}
	b.opened = append(b.opened, c)
	return c, nil
}

func (b *bench) close() {
	for _, c := range b.opened {
		c.close()
	}
}

// offers has a closed client of each contestant, for the operations that it offers.
var offers = map[string]*client{}

// enter records the operations that a contestant offers.
func enter(ctx context.Context, who contestant, on *rig.Service) error {
	b := newBench(options{}, who, on)
	c, err := b.client(ctx)
	if err != nil {
		return err
	}
	c.close()
	offers[who.Name] = c
	return nil
}

func newBench(o options, who contestant, on *rig.Service) *bench {
	queues++
	return &bench{
		contestant: who, queued: o.queued, scale: o.Scale, service: on,
		settings: settings{Address: on.Address, Queue: fmt.Sprintf("q%d", queues)},
	}
}

// measure runs the rounds.
func measure(ctx context.Context, o options) (*rig.Report, error) {
	return rig.Trial[contestant]{
		What: "Jobs", Field: field(), Rows: rows(o), Enter: enter, Derive: derive,
		Limit: timeout + time.Duration(o.queued)*200*time.Microsecond, // growth takes as long as its queue
	}.Run(ctx, o.Options)
}

// derive compares throughput with that of nats.go alone, and reports the jobs that one of ours lost or ran twice.
func derive(got rig.Results, entered []contestant, r *rig.Report) {
	for _, who := range entered {
		got.OverRaw(who.Contestant, "jobs_per_s", "over_raw")
		double, lost := total(got[who.Name], "_double"), total(got[who.Name], "_lost")
		if who.ours && double+lost > 0 {
			r.Failures = append(r.Failures, fmt.Sprintf("%s: %.0f jobs ran twice, %.0f never", who.Name, double, lost))
		}
	}
}

// total sums a count over all rows and rounds.
func total(figures map[string][]float64, suffix string) (sum float64) {
	for name, values := range figures {
		if strings.HasSuffix(name, suffix) {
			for _, v := range values {
				sum += v
			}
		}
	}
	return sum
}
