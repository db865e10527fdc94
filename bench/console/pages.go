package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

const (
	delayed   = 100
	probes    = 200 // of each page
	following = time.Minute
)

// named is a page that is measured.
type named struct {
	name string
	path func(i int) string
}

// pages are all but those that ask other services, and the doctor's.
func (b *bench) pages() []named {
	fixed := func(path string) named { return named{path, func(int) string { return path }} }
	jobs := "/jobs/" + stream
	spread := func(i int) int { return b.taken + slots + 1 + i*(b.queued-b.taken-slots-1)/probes } // over the jobs that wait
	return []named{
		fixed("/"), fixed("/jobs"), fixed(jobs), fixed(jobs + "?state=waiting"), fixed(jobs + "?state=given"), fixed(jobs + "?state=later"),
		fixed(jobs + "?state=ended"), fixed(jobs + "?subject=queue.kind7.>"), fixed(jobs + "?subject=other.>"), fixed(jobs + "?key=nobody"),
		{jobs + "?subject=...&key=...", func(i int) string {
			return fmt.Sprintf("%s?subject=queue.kind%d&key=%s", jobs, spread(i)%kinds, jobID(spread(i)))
		}},
		{jobs + "?from=...", func(i int) string { return fmt.Sprintf("%s?from=%d-%d", jobs, spread(i), b.created.UnixNano()) }},
		{jobs + "/<waits>", func(i int) string { return fmt.Sprintf("%s/%d", jobs, spread(i)+1) }},
		{jobs + "/<runs>", func(i int) string { return fmt.Sprintf("%s/%d", jobs, b.held[i%len(b.held)].Sequence) }},
		fixed(jobs + "/all?subject=queue.kind7.>"),
		fixed("/dead"), fixed("/dead?job-stream=" + stream), fixed("/dead/replays"), fixed("/workers"),
		{"/workers/<one>", func(int) string { return "/workers/" + b.instance }},
		fixed("/keys"), fixed("/keys/results"), fixed("/keys/limits"), fixed("/schedules"), fixed("/audit"),
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
		body, err := b.get(ctx, who.path(i), nil)
		if err != nil {
			return nil, err
		}
		taken[i], size = time.Since(began), len(body)
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

// follow has browsers follow pages.
func (b *bench) follow(ctx context.Context, _ point) (rig.Figures, error) {
	if err := b.serve(ctx); err != nil {
		return nil, err
	}
	var live []string // the pages that follow
	for _, p := range b.pages() {
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
	var all sync.WaitGroup
	var pages atomic.Int64
	errs := make([]error, b.browsers)
	for i := range errs {
		all.Go(func() { errs[i] = b.browse(run, live[i%len(live)], &pages) })
	}
	all.Wait()
	f := rig.Figures{}
	f.Since("follow", b.on, before, 1)
	taken := time.Since(began)
	return rig.Figures{
		"console_mb": float64(b.console.ResidentBytes()) / 1e6, "console_peak_mb": float64(b.console.PeakBytes()) / 1e6,
		"console_heap_mb":      b.heap(),
		"follow_console_cores": (b.console.ProcessorTime() - console).Seconds() / taken.Seconds(), "follow_pages": float64(pages.Load()),
		"follow_server_cores": f["follow_server_cpu_us"] / rig.In("us", taken),
	}, errors.Join(errs...)
}

// collected is what the runtime says of a collection: the heap before, after, and what of it is in use.
var collected = regexp.MustCompile(`(\d+)->(\d+)->(\d+) MB`)

// heap is the greatest of the console's latest collections.
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
		return nil //nolint:nilerr // it has followed for as long as it should
	}
	return fmt.Errorf("the news of %s ended: %w", path, err)
}
