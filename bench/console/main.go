// Command console measures the pages of expediter console over a long queue: what jobs cost while the queue grows, how long each page takes
// with all of it, and the memory of the console while browsers follow.
//
//	go -C bench run ./console [--jobs N] [--browsers N] [--only REGEXP] [--write FILE] [--json]
//
// The server and the console are processes of their own, so that their CPU time is counted apart. Jobs are queued by nats.go, with the
// headers that the worker's client sets.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

func main() {
	rig.NodeMain()
	var b bench
	register := func(flags *flag.FlagSet) {
		flags.IntVar(&b.most, "jobs", 10_000_000, "how many `JOBS` are queued")
		flags.IntVar(&b.browsers, "browsers", 50, "how many `BROWSERS` follow")
	}
	rig.Main("console", register, func(ctx context.Context, out io.Writer, o rig.Options) (any, error) {
		defer b.close()
		return measure(ctx, out, o, &b)
	})
}

// point is a line of a table: a length of the queue, a page, or the browsers.
type point struct {
	rig.Contestant

	jobs int
	path func(i int) string // of a page, when it is asked for once more
}

// sizes are the lengths of the queue at which jobs are measured.
func (b *bench) sizes() []int { return []int{b.most / 10_000, b.most / 100, b.most} }

func (b *bench) field() (all []point) {
	about := func(name string) rig.Contestant { return rig.Contestant{Name: name, Service: "nats"} }
	for _, n := range b.sizes() {
		all = append(all, point{Contestant: about(fmt.Sprintf("%d queued", n)), jobs: n})
	}
	for _, p := range b.pages() {
		all = append(all, point{Contestant: about(p.name), path: p.path})
	}
	return append(all, point{Contestant: about(fmt.Sprintf("%d browsers", b.browsers))})
}

func measure(ctx context.Context, out io.Writer, o rig.Options, b *bench) (any, error) {
	field := b.field()
	var targets []rig.Target
	for _, p := range field {
		if p.path != nil {
			targets = append(targets, rig.Target{On: p.Name, Figure: "page_p99_ms", Kind: rig.AtMost, Goal: 100},
				rig.Target{On: p.Name, Figure: "page_server_cpu_us", Kind: rig.AtMost, Goal: 5000})
		}
	}
	targets = append(targets, rig.Target{On: field[len(field)-1].Name, Figure: "console_peak_mb", Kind: rig.AtMost, Goal: 100})
	return rig.Trial[point]{
		What: "The console", Field: field, Rows: b.rows(), Starters: map[string]rig.Starter{"nats": rig.StartNATS(1, false)}, Targets: targets,
		Limit: 5*time.Minute + time.Duration(b.most)*200*time.Microsecond,
	}.Run(ctx, out, o)
}

func (b *bench) rows() []rig.Row[point] {
	row := func(run func(context.Context, point) (rig.Figures, error)) func(context.Context, point, *rig.Service) (rig.Figures, error) {
		return func(ctx context.Context, who point, on *rig.Service) (rig.Figures, error) {
			if err := b.open(ctx, on); err != nil {
				return nil, err
			}
			return run(ctx, who)
		}
	}
	return []rig.Row[point]{
		{
			Name: "jobs", Title: "A job while so many are queued: inserted, and taken and completed as the oldest",
			Once: true, Needs: func(p point) bool { return p.jobs > 0 }, Run: row(b.jobs),
			Columns: slices.Concat(cost("insert"), cost("take"), []rig.Column{{Figure: "server_mb", Title: "server MB", Format: "%.0f"}}),
		},
		{
			Name: "page", Title: fmt.Sprintf("Each page, %d times, while a worker holds %d of the jobs", probes, slots),
			Once: true, Needs: func(p point) bool { return p.path != nil }, Run: row(b.page),
			Columns: []rig.Column{
				{Figure: "page_p50_ms", Title: "p50 ms", Format: "%.1f"},
				{Figure: "page_p99_ms", Title: "p99 ms", Format: "%.1f"},
				{Figure: "page_server_cpu_us", Title: "server's CPU µs", Format: "%.0f"},
				{Figure: "page_console_cpu_us", Title: "console's CPU µs", Format: "%.0f"},
				{Figure: "page_kb", Title: "kB", Format: "%.0f"},
			},
		},
		{
			Name: "follow", Title: "Browsers that follow these pages for a minute, and read them anew at each piece of news",
			Once: true, Needs: func(p point) bool { return p.jobs == 0 && p.path == nil }, Run: row(b.follow),
			Columns: []rig.Column{
				{Figure: "console_mb", Title: "console MB", Format: "%.0f"},
				{Figure: "console_peak_mb", Title: "at most", Format: "%.0f"},
				{Figure: "console_heap_mb", Title: "of it heap", Format: "%.0f"},
				{Figure: "follow_pages", Title: "pages", Format: "%.0f"},
				{Figure: "follow_server_cores", Title: "server's cores", Format: "%.2f"},
				{Figure: "follow_console_cores", Title: "console's cores", Format: "%.2f"},
			},
		},
	}
}

// cost are the columns of an operation of jobs.
func cost(what string) []rig.Column {
	return []rig.Column{
		{Figure: what + "_cpu_us", Title: what + ": CPU µs", Format: "%.0f"},
		{Figure: what + "_server_cpu_us", Title: "server's", Format: "%.0f"},
		{Figure: what + "_grew", Title: "grew", Format: "%.2f"},
	}
}
