package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// timeout bounds one row of one contestant. The job of a dead worker of asynq takes a minute.
const timeout = 3 * time.Minute

// bench is one row of one contestant in one round.
type bench struct {
	contestant contestant
	opened     []*client
	listed     int
	queued     int
	scale      float64
	service    *rig.Service
	settings   settings
}

// queues makes every queue one that was never used before.
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

// offers is what each contestant offers; closed.
var offers = map[string]*client{}

// enter looks at what a contestant offers.
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
		contestant: who, listed: o.listed, queued: o.queued, scale: o.Scale, service: on,
		settings: settings{Address: on.Address, Queue: fmt.Sprintf("q%d", queues)},
	}
}

// measure runs the rounds and writes the report.
func measure(ctx context.Context, out io.Writer, o options) (any, error) {
	return rig.Trial[contestant]{
		What: "Jobs", Field: field(), Rows: rows(o), Starters: starters, Targets: targets, Limit: timeout + limitOf(o),
		Enter: enter,
		Derive: func(got rig.Results, entered []contestant) {
			for _, who := range entered {
				got.OverRaw(who.Contestant, "jobs_per_s", "over_raw")
			}
		},
		Judge: judge,
	}.Run(ctx, out, o.Options)
}

// limitOf is what a large queue takes to grow.
func limitOf(o options) time.Duration {
	return time.Duration(max(o.listed, o.queued)) * 200 * time.Microsecond
}

// targets are those of one server that syncs as deployed.
var targets = []rig.Target{
	{On: "r1", Figure: "over_raw", Kind: rig.AtLeast, Goal: 0.6},
	{On: "r1", Figure: "cpu_us_per_job", Kind: rig.AtMost, Goal: 80},
	{On: "r1", Figure: "start_p50_ms", Kind: rig.AtMost, Goal: 1},
	{On: "r1", Figure: "five_step_jobs_per_s", Kind: rig.AtLeast, Goal: 4000},
	{On: "r1", Figure: "restart_over_ackwait", Kind: rig.AtMost, Goal: 2},
	{On: "r1", Figure: "ordered_over_plain", Kind: rig.AtLeast, Goal: 0.8},
	{On: "r1", Figure: "handlers_cpu_over_plain", Kind: rig.AtMost, Goal: 1.1},
	{On: "r1", Figure: "listing_page_server_cpu_us", Kind: rig.AtMost, Goal: 5000},
	{On: "r1", Figure: "listing_vain_server_cpu_us", Kind: rig.AtMost, Goal: 5000},
}

// judge adds the effects that were lost or doubled to what is said of each. Where one is ours, it is a failure.
func judge(r *rig.Report, got rig.Results) {
	for who := range r.Classes {
		double, lost := total(got[who], "_double"), total(got[who], "_lost")
		if figures := r.Peers[who]; figures != nil {
			figures["double"], figures["lost"] = double, lost
		}
		if figures := r.Ours[who]; figures != nil {
			figures["double"], figures["lost"] = double, lost
			if double+lost > 0 {
				r.OK = false
				r.Failures = append(r.Failures, fmt.Sprintf("%s: %.0f jobs ran twice, %.0f never", who, double, lost))
			}
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
