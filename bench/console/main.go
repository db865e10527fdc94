// Command console measures the pages of expediter console over a long queue: the cost of jobs while the queue grows, how long each page
// takes with all of it, and the memory of the console while browsers follow.
//
//	go -C bench run ./console [--jobs N] [--browsers N] [--only REGEXP] [--write FILE] [--json]
//
// The server and the console are processes of their own, so that their CPU time is counted apart. Jobs are queued by nats.go, with the
// headers that the worker's client sets. One in a hundred has a subject of its own.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

func main() {
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
	page named
}

// sizes returns the lengths of the queue at which jobs are measured.
func (b *bench) sizes() []int { return []int{b.most / 10_000, b.most / 100, b.most} }

func (b *bench) field() (all []point) {
	about := func(name string) rig.Contestant { return rig.Contestant{Name: name, Service: "nats"} }
	for _, n := range b.sizes() {
		all = append(all, point{Contestant: about(fmt.Sprintf("%d queued", n)), jobs: n})
	}
	for _, p := range b.pages() {
		all = append(all, point{Contestant: about(p.name), page: p})
	}
	return append(all, point{Contestant: about(fmt.Sprintf("%d browsers", b.browsers))})
}

func measure(ctx context.Context, out io.Writer, o rig.Options, b *bench) (any, error) {
	field := b.field()
	var targets []rig.Target
	for _, p := range field {
		if p.page.path != nil {
			targets = append(targets, rig.Target{On: p.Name, Figure: "page_p99_ms", Kind: rig.AtMost, Goal: 100},
				rig.Target{On: p.Name, Figure: "page_server_cpu_us", Kind: rig.AtMost, Goal: 5000})
		}
	}
	targets = append(targets, rig.Target{On: field[len(field)-1].Name, Figure: "console_peak_mb", Kind: rig.AtMost, Goal: 100})
	return rig.Trial[point]{
		What: "The console", Field: field, Rows: b.rows(), Targets: targets,
		Limit: 5*time.Minute + time.Duration(b.most)*400*time.Microsecond,
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
			Once: true, Needs: func(p point) bool { return p.page.name != "" }, Run: row(b.page),
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
			Once: true, Needs: func(p point) bool { return p.jobs == 0 && p.page.name == "" }, Run: row(b.follow),
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

// cost returns the columns of an operation of jobs.
func cost(what string) []rig.Column {
	return []rig.Column{
		{Figure: what + "_cpu_us", Title: what + ": CPU µs", Format: "%.0f"},
		{Figure: what + "_server_cpu_us", Title: "server's", Format: "%.0f"},
		{Figure: what + "_grew", Title: "grew", Format: "%.2f"},
	}
}

const (
	delayed   = 100
	probes    = 200 // of each page
	following = time.Minute
)

// named is a page that is measured, or the same reads by nats.go alone: the lower bound of a page.
type named struct {
	name string
	path func(i int) string                            // the path of the page, for its i-th request
	raw  func(ctx context.Context, i int) (int, error) // reads, and returns the number of bytes
}

// read reads a page for the i-th time, or calls raw, and returns the size.
func (n named) read(ctx context.Context, b *bench, i int) (int, error) {
	if n.raw != nil {
		return n.raw(ctx, i)
	}
	body, err := b.get(ctx, n.path(i), nil)
	return len(body), err
}

// pages returns all pages but those that ask other services, and the doctor's.
func (b *bench) pages() []named {
	vary := func(name string, path func(i int) string) named { return named{name: name, path: path} }
	fixed := func(path string) named { return vary(path, func(int) string { return path }) }
	jobs := "/jobs/" + stream
	spread := func(i int) int { return b.taken + slots + 1 + i*(b.queued-b.taken-slots-1)/probes } // over the jobs that wait
	return []named{
		fixed("/"), fixed("/jobs"), fixed(jobs), fixed(jobs + "?state=waiting"), fixed(jobs + "?state=given"), fixed(jobs + "?state=later"),
		fixed(jobs + "?state=ended"), fixed(jobs + "?subject=queue.kind7.>"), fixed(jobs + "?subject=other.>"), fixed(jobs + "?key=nobody"),
		vary(jobs+"?subject=...&key=...", func(i int) string {
			at := spread(i) / own * own
			return fmt.Sprintf("%s?subject=queue.kind%d&key=%s", jobs, at/own%kinds, jobID(at))
		}),
		vary(jobs+"?from=...", func(i int) string {
			return fmt.Sprintf("%s?from=%d-0-%s", jobs, spread(i), b.created.Format(time.RFC3339Nano))
		}),
		vary(jobs+"/<waits>", func(i int) string { return fmt.Sprintf("%s/%d", jobs, spread(i)+1) }),
		vary(jobs+"/<runs>", func(i int) string { return fmt.Sprintf("%s/%d", jobs, b.held[i%len(b.held)].Sequence) }),
		fixed(jobs + "/all?subject=queue.kind7.>"),
		fixed("/dead"), fixed("/dead?job-stream=" + stream), fixed("/dead/replays"), fixed("/workers"),
		vary("/workers/<one>", func(int) string { return "/workers/" + b.instance }),
		fixed("/keys"), fixed("/keys/results"), fixed("/keys/limits"), fixed("/schedules"), fixed("/audit"),
		{name: "nats.go: one message", raw: func(ctx context.Context, i int) (int, error) { return b.raw(ctx, spread(i), 1, 0) }},
		{name: "nats.go: 200 messages, one by one", raw: func(ctx context.Context, i int) (int, error) { return b.raw(ctx, spread(i), 200, 0) }},
		{name: "nats.go: 200 messages, at once", raw: func(ctx context.Context, i int) (int, error) { return b.raw(ctx, spread(i), 1, 200) }},
	}
}

// serve starts the console over the longest queue, and a worker that holds jobs, once.
func (b *bench) serve(ctx context.Context) error {
	if b.console != nil {
		return nil
	}
	err := b.fill(ctx, b.most)
	if err != nil {
		return err
	}
	b.stop, err = b.work(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}, nil)
	if err != nil {
		return err
	}
	if _, err := b.client.Schedule(ctx, worker.Periodic{Cron: "@daily", Name: "nightly", Subject: "queue.report"}); err != nil {
		return err
	}
	for i := range delayed {
		at := worker.NewJob{Args: []byte(payload), Delay: 24 * time.Hour, ID: fmt.Sprintf("later-%d", i), Subject: fmt.Sprintf("queue.later.%d", i)}
		if _, err := b.client.Insert(ctx, at); err != nil {
			return err
		}
	}
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	b.created = s.CachedInfo().Created
	given, err := b.client.Jobs(ctx, worker.JobFilter{States: []worker.State{worker.StateDelivered, worker.StateRunning, worker.StateRetrying}})
	if err != nil {
		return err
	}
	b.held = given.Jobs
	workers, err := inspect.Workers(ctx, b.nc)
	if err != nil {
		return err
	}
	b.instance = workers[0].Instance
	b.console, err = rig.StartConsole(ctx, b.on.Address)
	return err
}

// page measures a page.
func (b *bench) page(ctx context.Context, who point) (rig.Figures, error) {
	if err := b.serve(ctx); err != nil {
		return nil, err
	}
	var size int
	taken := make([]time.Duration, probes)
	before, console := rig.WorkOf(b.on), b.console.ProcessorTime()
	for i := range taken {
		began := time.Now()
		n, err := who.page.read(ctx, b, i)
		if err != nil {
			return nil, err
		}
		taken[i], size = time.Since(began), n
	}
	f := rig.Figures{"page_kb": float64(size) / 1e3, "page_console_cpu_us": rig.In("us", b.console.ProcessorTime()-console) / probes}
	f.Since("page", b.on, before, probes)
	f.Quantiles("page", "ms", taken)
	return f, b.exact(ctx)
}

var counted = regexp.MustCompile(`(All|Waiting|With a worker|Delayed) <b>([\d,]+)</b>`)

// exact checks the counts of the page of jobs.
func (b *bench) exact(ctx context.Context) error {
	body, err := b.get(ctx, "/jobs/"+stream, nil)
	if err != nil {
		return err
	}
	is := map[string]int{}
	for _, found := range counted.FindAllStringSubmatch(string(body), -1) {
		is[found[1]], _ = strconv.Atoi(strings.ReplaceAll(found[2], ",", "")) //nolint:errcheck // digits
	}
	later, left := delayed+1, b.queued-b.taken // with the schedule
	if is["All"] != left+later || is["Waiting"]+is["With a worker"] != left || is["With a worker"] < slots || is["Delayed"] != later {
		err = fmt.Errorf("%d jobs wait or run and %d are delayed, and the page says %v", left, later, is)
	}
	return err
}

// get reads a page, as htmx does with a header.
func (b *bench) get(ctx context.Context, path string, header http.Header) ([]byte, error) {
	answer, err := b.ask(ctx, path, header)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", path, answer.Status, body)
	}
	return body, err
}

func (b *bench) ask(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.console.Address+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	if header != nil {
		req.Header = header
	}
	return http.DefaultClient.Do(req) //nolint:wrapcheck // it says which
}

var topic = regexp.MustCompile(`sse-connect="([^"]+)"`)

// follow makes browsers follow pages.
func (b *bench) follow(ctx context.Context, _ point) (rig.Figures, error) {
	if err := b.serve(ctx); err != nil {
		return nil, err
	}
	var live []string // the pages that follow
	for _, p := range b.pages() {
		if p.path == nil {
			continue
		}
		body, err := b.get(ctx, p.path(1), nil)
		if err != nil {
			return nil, err
		}
		if topic.Match(body) {
			live = append(live, p.path(1))
		}
	}
	before, console, began := rig.WorkOf(b.on), b.console.ProcessorTime(), time.Now()
	run, cancel := context.WithTimeout(ctx, following)
	defer cancel()
	var pages atomic.Int64
	err := rig.Together(b.browsers, func(i int) error { return b.browse(run, live[i%len(live)], &pages) })
	f := rig.Figures{}
	f.Since("follow", b.on, before, 1)
	taken := time.Since(began)
	return rig.Figures{
		"console_mb": float64(b.console.ResidentBytes()) / 1e6, "console_peak_mb": float64(b.console.PeakBytes()) / 1e6,
		"console_heap_mb":      b.heap(),
		"follow_console_cores": (b.console.ProcessorTime() - console).Seconds() / taken.Seconds(), "follow_pages": float64(pages.Load()),
		"follow_server_cores": f["follow_server_cpu_us"] / rig.In("us", taken),
	}, err
}

// collected matches the runtime's line about a collection: the heap before, after, and the live part of it.
var collected = regexp.MustCompile(`(\d+)->(\d+)->(\d+) MB`)

// heap returns the greatest heap at the console's latest collections.
func (b *bench) heap() (most float64) {
	for _, found := range collected.FindAllStringSubmatch(b.console.Said(), -1) {
		mb, _ := strconv.ParseFloat(found[2], 64) //nolint:errcheck // digits
		most = max(most, mb)
	}
	return most
}

// browse follows a page until ctx ends, and reads it anew at each piece of news.
func (b *bench) browse(ctx context.Context, path string, pages *atomic.Int64) error {
	page, err := b.get(ctx, path, nil)
	if err != nil {
		return err
	}
	news, err := b.ask(ctx, html.UnescapeString(string(topic.FindSubmatch(page)[1])), nil)
	if err != nil {
		return err
	}
	defer news.Body.Close() //nolint:errcheck // it has ended
	if news.StatusCode != http.StatusOK {
		return fmt.Errorf("the news of %s: %s", path, news.Status)
	}
	for lines := bufio.NewScanner(news.Body); lines.Scan(); {
		if lines.Text() != "event: changed" {
			continue
		}
		if _, err = b.get(ctx, path, http.Header{"Hx-Request": {"true"}}); err != nil {
			break
		}
		pages.Add(1)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the time of the measurement is over
	}
	return fmt.Errorf("the news of %s ended: %w", path, err)
}
