package main

import (
	"context"
	"fmt"
	"io"
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
