package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// timeout bounds one row of one contestant.
const timeout = 10 * time.Minute

// sizes are the audiences, and the number of events that are published to each at scale 1, one after the other.
var sizes = []struct{ recipients, events int }{{10, 100}, {1_000, 10}, {10_000, 1}, {largest, 1}}

// largest is the audience that is notified in the first round only: on three servers it takes minutes.
const largest = 100_000

// rowOf is one measurement.
type rowOf struct {
	events     int
	recipients int
}

// name returns the name of the row, for --only and as the prefix of its figures.
func (r rowOf) name() string { return fmt.Sprintf("%s_%d", inbox, r.recipients) }

func (r rowOf) needs(who contestant) bool {
	return who.most == 0 || r.recipients <= who.most
}

// rows returns all measurements, in the order of the tables.
func rows(o options) (all []rowOf) {
	for _, size := range sizes {
		if size.recipients <= o.audience {
			all = append(all, rowOf{max(1, int(float64(size.events)*o.Scale)), size.recipients})
		}
	}
	return all
}

// measure runs the rounds and writes the report.
func measure(ctx context.Context, out io.Writer, o options) (any, error) {
	trial := rig.Trial[contestant]{
		What: "Notifications", Field: field(), More: o.more(), Targets: targets, Limit: timeout, Derive: o.derive,
	}
	for _, r := range rows(o) {
		trial.Rows = append(trial.Rows, rig.Row[contestant]{
			Name: r.name(), Title: r.title(), Columns: r.columns(), Once: r.recipients == largest, Needs: r.needs,
			Run: func(ctx context.Context, who contestant, on *rig.Service) (rig.Figures, error) {
				return r.run(ctx, &bench{contestant: who, profile: o.profile, row: r.name(), service: on})
			},
		})
	}
	return trial.Run(ctx, out, o.Options)
}

// bench is one row of one contestant in one round.
type bench struct {
	contestant contestant
	profile    string
	row        string
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
	f[r.name()+"_cpu_us"] = f[r.name()+"_client_cpu_us"] + f[r.name()+"_server_cpu_us"]
	return f, errors.Join(err, r.judge(f, counted))
}

// times adds the median time of the events.
func (r rowOf) times(f rig.Figures, all []timing) {
	figure := func(what string, taken time.Duration) {
		f[r.name()+"_"+what+"_per_s"] = float64(r.recipients) / taken.Seconds()
		f[r.name()+"_"+what+"_ns"] = float64(taken) / float64(r.recipients)
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

// targets are the targets of one server. They require that the memory does not depend on the audience, and that a row costs the same with
// the largest audience and a hundredth of it.
var targets = []rig.Target{
	{On: "r1", Figure: "inapp_1000_over_raw", Kind: rig.AtLeast, Goal: 1.5},
	{On: "r1", Figure: "inapp_stored_growth", Kind: rig.AtMost, Goal: 1.5},
	{On: "r1", Figure: "inapp_sent_growth", Kind: rig.AtMost, Goal: 1.5},
	{On: "r1", Figure: "inapp_memory_growth_mb", Kind: rig.AtMost, Goal: 64},
}

// derive adds the growth of figures with the audience, and compares the stored rows with those of nats.go alone.
func (o options) derive(got rig.Results, entered []contestant) {
	for _, who := range entered {
		for _, r := range rows(o) {
			got.OverRaw(who.Contestant, r.name()+"_stored_per_s", r.name()+"_over_raw")
		}
		got.Add(who.Name, growth(got[who.Name], o))
	}
}

// more returns the tables of growth.
func (o options) more() []rig.Table {
	return []rig.Table{{
		Title:   "ns for each row and recipient, by audience; how much more the largest takes than 1,000; its memory beyond theirs",
		Columns: growthColumns(o),
	}}
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

// growth compares the largest audience with 1,000 recipients, by medians, and adds the exponent with which the time of an
// event grows from 1,000 recipients on: 1 is linear.
func growth(figures map[string][]float64, o options) rig.Figures {
	const small = 1_000
	large := 0
	for _, r := range rows(o) {
		if r.recipients > small && len(figures[r.name()+"_stored_ns"]) > 0 {
			large = r.recipients
		}
	}
	f := rig.Figures{}
	at := func(recipients int, what string) (float64, bool) {
		values := figures[fmt.Sprintf("%s_%d_%s", inbox, recipients, what)]
		if len(values) == 0 {
			return 0, false
		}
		return rig.NewSpread(values).Median, true
	}
	for _, what := range []string{"stored", "sent"} {
		few, ok := at(small, what+"_ns")
		many, too := at(large, what+"_ns")
		if ok && too {
			f[inbox+"_"+what+"_growth"] = many / few
			f[inbox+"_"+what+"_exponent"] = 1 + math.Log(many/few)/math.Log(float64(large)/small)
		}
	}
	few, ok := at(small, "client_peak_mb")
	many, too := at(large, "client_peak_mb")
	if ok && too {
		f[inbox+"_memory_growth_mb"] = many - few
	}
	return f
}

func growthColumns(o options) (all []rig.Column) {
	for _, what := range []string{"stored", "sent"} {
		for _, r := range rows(o) {
			all = append(all, rig.Column{
				Figure: r.name() + "_" + what + "_ns", Title: fmt.Sprintf("%s, %d", what, r.recipients), Format: "%.0f",
			})
		}
		all = append(all,
			rig.Column{Figure: inbox + "_" + what + "_growth", Title: "grew", Format: "%.2f"},
			rig.Column{Figure: inbox + "_" + what + "_exponent", Title: "exponent", Format: "%.2f"},
		)
	}
	return append(all, rig.Column{Figure: inbox + "_memory_growth_mb", Title: "MB more", Format: "%.0f"})
}
