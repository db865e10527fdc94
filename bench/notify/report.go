package main

import (
	"fmt"
	"math"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// targets are those of one server. The memory of the largest audience has nothing to do with that of a hundredth of it,
// and a row costs the same in both.
var targets = []rig.Target{
	{On: "r1", Figure: "inapp_1000_over_raw", Kind: rig.AtLeast, Goal: 1.5},
	{On: "r1", Figure: "inapp_stored_growth", Kind: rig.AtMost, Goal: 1.5},
	{On: "r1", Figure: "inapp_sent_growth", Kind: rig.AtMost, Goal: 1.5},
	{On: "r1", Figure: "inapp_memory_growth_mb", Kind: rig.AtMost, Goal: 64},
}

// derive adds how figures grow with the audience, and compares the rows that were stored with those of nats.go alone.
func (o options) derive(got rig.Results, entered []contestant) {
	for _, who := range entered {
		for _, r := range rows(o) {
			got.OverRaw(who.Contestant, r.name()+"_stored_per_s", r.name()+"_over_raw")
		}
		got.Add(who.Name, growth(got[who.Name], o))
	}
}

// more are the tables of growth.
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
