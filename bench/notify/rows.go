package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// timeout bounds one row of one contestant.
const timeout = 10 * time.Minute

// sizes are the audiences, and the number of events that are published to each at scale 1, one after the other.
var sizes = []rowOf{{100, 10}, {10, 1_000}, {1, 10_000}}

// rowOf is one measurement.
type rowOf struct {
	events     int
	recipients int
}

// name returns the name of the row, for --only and as the prefix of its figures.
func (r rowOf) name() string { return fmt.Sprintf("%s_%d", inbox, r.recipients) }

// measure runs the rounds.
func measure(ctx context.Context, o rig.Options) (*rig.Report, error) {
	trial := rig.Trial[contestant]{
		What: "Notifications", Field: field(), Limit: timeout, Derive: derive,
	}
	for _, r := range sizes {
		r.events = max(1, int(float64(r.events)*o.Scale))
		trial.Rows = append(trial.Rows, rig.Row[contestant]{
			Name: r.name(), Title: r.title(), Columns: r.columns(),
			Run: func(ctx context.Context, who contestant, on *rig.Service) (rig.Figures, error) {
				return r.run(ctx, &bench{contestant: who, service: on})
			},
		})
	}
	return trial.Run(ctx, o)
}

// bench is one row of one contestant in one round.
type bench struct {
	contestant contestant
	service    *rig.Service
}

// warmUp is the number of recipients of the first event, which does not count.
const warmUp = 10

// events numbers the events, so that each id is new.
var events int

func eventID() string {
	events++
	return fmt.Sprintf("evt-%d", events)
}

// run publishes the events of a row.
func (r rowOf) run(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.contestant.open(ctx, b)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if _, err := c.tell(ctx, eventID(), warmUp); err != nil {
		return nil, err
	}
	if err := c.mark(ctx); err != nil {
		return nil, err
	}
	b.service.ResetPeak()
	before := rig.WorkOf(b.service)
	var all []timing
	for range r.events {
		t, err := c.tell(ctx, eventID(), r.recipients)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	f := rig.Figures{}
	f.Since(r.name(), b.service, before, r.recipients*r.events)
	if c.settle != nil {
		spent, err := c.settle(ctx)
		if err != nil {
			return nil, err
		}
		f.Since(r.name(), b.service, before, r.recipients*r.events)
		f[r.name()+"_client_cpu_us"] = rig.In("us", spent) / float64(r.recipients*r.events)
	}
	if c.memory != nil {
		f[r.name()+"_client_peak_mb"] = mb(c.memory())
	}
	f[r.name()+"_server_peak_mb"] = mb(b.service.PeakBytes())
	r.times(f, all)
	counted, err := c.count(ctx)
	return f, errors.Join(err, r.judge(f, counted))
}

// times adds the median time of the events.
func (r rowOf) times(f rig.Figures, all []timing) {
	figure := func(what string, taken time.Duration) {
		f[r.name()+"_"+what+"_per_s"] = float64(r.recipients) / taken.Seconds()
	}
	slices.SortFunc(all, func(a, b timing) int { return int(a.stored - b.stored) })
	figure("stored", all[len(all)/2].stored)
	if all[0].sent > 0 {
		slices.SortFunc(all, func(a, b timing) int { return int(a.sent - b.sent) })
		figure("sent", all[len(all)/2].sent)
	}
}

// judge adds the numbers of missing and of doubled messages. Either is an error.
func (r rowOf) judge(f rig.Figures, c counts) error {
	want := r.recipients * r.events
	if c.sent < 0 {
		c.sent = want
	}
	lost := max(want-c.stored, want-c.sent, 0)
	double := c.double + max(c.stored-want, 0) + max(c.sent-want, 0)
	f[r.name()+"_lost"], f[r.name()+"_double"] = float64(lost), float64(double)
	if lost+double > 0 {
		return fmt.Errorf("%d rows, %d messages, %d too many: want %d of each and no more", c.stored, c.sent, c.double, want)
	}
	return nil
}

func mb(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// derive compares the stored rows with those of nats.go alone.
func derive(got rig.Results, entered []contestant, _ *rig.Report) {
	for _, who := range entered {
		for _, r := range sizes {
			got.OverRaw(who.Contestant, r.name()+"_stored_per_s", r.name()+"_over_raw")
		}
	}
}

func (r rowOf) title() string {
	return fmt.Sprintf("Events to %d recipients by inapp, %d in each round one after the other: rows stored and sent, from the event's publication",
		r.recipients, r.events)
}

func (r rowOf) columns() []rig.Column {
	figure := func(name string) string { return r.name() + "_" + name }
	return []rig.Column{
		{Figure: figure("stored_per_s"), Title: "stored/s", Format: "%.0f", Spread: true},
		{Figure: figure("over_raw"), Title: "of raw", Format: "%.2f", Spread: true},
		{Figure: figure("sent_per_s"), Title: "sent/s", Format: "%.0f", Spread: true},
		{Figure: figure("client_cpu_us"), Title: "CPU µs/row", Format: "%.0f", Spread: true},
		{Figure: figure("server_cpu_us"), Title: "server's", Format: "%.0f"},
		{Figure: figure("client_peak_mb"), Title: "peak MB", Format: "%.0f"},
		{Figure: figure("server_peak_mb"), Title: "server's", Format: "%.0f"},
		{Figure: figure("lost"), Title: "lost", Format: "%.0f"},
		{Figure: figure("double"), Title: "double", Format: "%.0f"},
	}
}
