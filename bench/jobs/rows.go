package main

import (
	"context"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// row is one thing that is measured.
type row struct {
	name    string
	title   string
	needs   func(contestant, *client) bool
	run     func(context.Context, *bench) (rig.Figures, error)
	once    bool // in the first round only: it takes long
	columns []rig.Column
}

func everybody(contestant, *client) bool     { return true }
func stepping(_ contestant, c *client) bool  { return c.steps != nil }
func leasing(who contestant, _ *client) bool { return who.lease > 0 }
func growing(_ contestant, c *client) bool   { return c.queue != nil }

func effects(name string) []rig.Column {
	return []rig.Column{
		{Figure: name + "_double", Title: "double", Format: "%.0f"},
		{Figure: name + "_lost", Title: "lost", Format: "%.0f"},
	}
}

// rows is everything that is measured, in the order of the tables.
func rows() []row {
	return []row{
		{
			name: "jobs", title: "Unique no-op jobs, inserted one at a time by 32 producers and worked in 100 slots until the system has recorded each",
			needs: everybody, run: throughput,
			columns: rig.Columns([]rig.Column{
				{Figure: "jobs_per_s", Title: "jobs/s", Format: "%.0f", Spread: true},
				{Figure: "over_raw", Title: "of raw", Format: "%.2f", Spread: true},
				{Figure: "cpu_us_per_job", Title: "CPU µs/job", Format: "%.0f", Spread: true},
				{Figure: "server_cpu_us_per_job", Title: "server's", Format: "%.0f"},
			}, effects("jobs")),
		},
		{
			name: "start", title: "From the call of insert to the start of the job, at 200 jobs/s",
			needs: everybody, run: start,
			columns: rig.Columns([]rig.Column{
				{Figure: "start_p50_ms", Title: "p50 ms", Format: "%.2f", Spread: true},
				{Figure: "start_p99_ms", Title: "p99 ms", Format: "%.2f", Spread: true},
			}, effects("start")),
		},
		{
			name: "steps", title: "Jobs of five steps that do nothing, each recorded before the next begins",
			needs: stepping, run: steps,
			columns: rig.Columns([]rig.Column{
				{Figure: "five_step_jobs_per_s", Title: "jobs/s", Format: "%.0f", Spread: true},
				{Figure: "five_step_cpu_us_per_job", Title: "CPU µs/job", Format: "%.0f", Spread: true},
			}, effects("five_step")),
		},
		{
			name: "duplicates", title: "The same as the first, with every fifth job inserted once more by another producer",
			needs: everybody, run: duplicates,
			columns: rig.Columns([]rig.Column{
				{Figure: "duplicates_jobs_per_s", Title: "jobs/s", Format: "%.0f", Spread: true},
				{Figure: "duplicates_told_percent", Title: "told % of them", Format: "%.0f"},
			}, effects("duplicates")),
		},
		{
			name: "restart", title: "From the kill -9 of a worker in mid-job until the job starts on another",
			needs: leasing, run: restart, once: true,
			columns: []rig.Column{
				{Figure: "restart_ms", Title: "ms", Format: "%.0f"},
				{Figure: "restart_over_ackwait", Title: "of AckWait, or what is like it", Format: "%.2f"},
			},
		},
		{
			name: "growth", title: "Insert and start of a job while others of another kind are queued: with a hundredth of --queued, and with all",
			needs: growing, run: growth, once: true,
			columns: []rig.Column{
				{Figure: "growth_from", Title: "from", Format: "%.0f"},
				{Figure: "growth_to", Title: "to", Format: "%.0f"},
				{Figure: "growth_insert_us", Title: "insert p50 µs", Format: "%.0f"},
				{Figure: "growth_insert_ratio", Title: "grew", Format: "%.2f"},
				{Figure: "growth_start_us", Title: "start p50 µs", Format: "%.0f"},
				{Figure: "growth_start_ratio", Title: "grew", Format: "%.2f"},
			},
		},
	}
}
