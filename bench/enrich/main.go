// Command enrich measures the enricher over TCP on the loopback: how long it takes to answer requests whose places are
// all known (hit), also by an enricher that keeps no results in memory (stored) and by one without metrics and traces
// (bare), and requests of places that nobody has asked for before (miss).
//
//	go -C bench run ./enrich [--rounds N] [--scale X] [--only REGEXP] [--memory BYTES] [--json]
//
// Every round starts a NATS server, an enricher and its clients in this process for each kind of enricher, connected by TCP
// sockets, and runs every case once. A figure is the median of the rounds, with the least and the greatest of them beside it.
//
// One client asks one request after the other and lets the enricher finish its jobs in between, outside the time that
// is measured; 16 clients ask without a pause. The CPU time of a request is that of the whole process: client,
// enricher, NATS server and, for a miss, the jobs. Places that are missed have ids never used before, and the provider
// answers at once with the one venue that matches. The 99th percentile of fewer than a hundred requests is their
// slowest.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

func main() {
	o := options{}
	register := func(flags *flag.FlagSet) {
		flags.Int64Var(&o.memory, "memory", 0, "keep results in `BYTES` of the enricher's memory; 0 is its default, -1 keeps none")
	}
	rig.Main("enrich", register, func(ctx context.Context, shared rig.Options) (*rig.Report, error) {
		o.Options = shared
		return measure(ctx, o)
	})
}

type options struct {
	rig.Options

	memory int64
}

// timeout bounds one round.
const timeout = 5 * time.Minute

// measure runs the rounds.
func measure(ctx context.Context, o options) (*rig.Report, error) {
	all := cases(o)
	if len(all) == 0 {
		return nil, fmt.Errorf("no case matches --only %q", o.Only)
	}
	r := rig.NewReport(o.Options, rig.ThisMachine())
	r.Note("Enricher over TCP on the loopback; NATS, enricher and clients in one process.")
	r.Note("%s", r.Machine)
	r.Note("Durability: %s. Rounds: %d, each on a fresh server.", durability, o.Rounds)
	got := rig.Results{}
	for n := range o.Rounds {
		for i := range kinds {
			if err := round(ctx, o, kinds[rig.Turn(n, i, len(kinds))], all, got, n); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", n+1, o.Rounds)
	}
	report(r, all, got)
	return r, nil
}

// kinds are the kinds of requests and enrichers, each measured on its own stand.
var kinds = []string{"hit", "stored", "bare", "miss"}

// round runs every case of a kind once, on a separate server. Every other round goes through them backwards, so that no case always
// comes after the same one.
func round(ctx context.Context, o options, kind string, all []kase, got rig.Results, n int) (err error) {
	all = slices.DeleteFunc(slices.Clone(all), func(k kase) bool { return k.Kind != kind })
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s, err := newStand(ctx, kind, o.memory)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := s.close(); err == nil {
			err = closeErr
		}
	}()
	known := s.newIDs(100)
	if err := warm(ctx, s, known); err != nil {
		return err
	}
	for i := range all {
		k := all[rig.Turn(n, i, len(all))]
		figures, err := runCase(ctx, s, k, known)
		if err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		got.Add(k.String(), figures)
	}
	return nil
}

// warm makes the places known, and opens every connection.
func warm(ctx context.Context, s *stand, known []int) error {
	if _, err := s.askers["http"][0](ctx, body(known)); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	request := body(known[:10])
	for transport, askers := range s.askers {
		for _, a := range askers {
			for range 20 {
				answer, err := a(ctx, request)
				if err == nil {
					err = check(kase{Transport: transport, Kind: "hit", Places: 10}, answer)
				}
				if err != nil {
					return fmt.Errorf("warm up: %w", err)
				}
			}
		}
	}
	return nil
}

func runCase(ctx context.Context, s *stand, k kase, known []int) (rig.Figures, error) {
	bodies := make([][]byte, k.requests)
	for i := range bodies {
		if k.hit() {
			bodies[i] = body(known[:k.Places])
		} else {
			bodies[i] = body(s.newIDs(k.Places))
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := rig.SelfTime(), time.Now()
	took, err := askAll(ctx, s, k, bodies)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	cpu = rig.SelfTime() - cpu
	runtime.ReadMemStats(&after)
	n := float64(len(took))
	f := rig.Figures{
		"cpu_us": rig.In("us", cpu) / n, "allocs": float64(after.Mallocs-before.Mallocs) / n, "requests_per_s": n / elapsed.Seconds(),
	}
	f.Quantiles("request", "ms", took)
	return f, nil
}

// askAll sends all requests and returns the time of each answer.
func askAll(ctx context.Context, s *stand, k kase, bodies [][]byte) ([]time.Duration, error) {
	if k.Clients == 1 {
		return askEach(ctx, s, k, s.askers[k.Transport][0], bodies)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	took := make([][]time.Duration, k.Clients)
	for i, a := range s.askers[k.Transport][:k.Clients] {
		wg.Go(func() {
			var err error
			share := bodies[len(bodies)*i/k.Clients : len(bodies)*(i+1)/k.Clients]
			if took[i], err = askEach(ctx, s, k, a, share); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return slices.Concat(took...), context.Cause(ctx)
}

func askEach(ctx context.Context, s *stand, k kase, a asker, bodies [][]byte) ([]time.Duration, error) {
	took := make([]time.Duration, 0, len(bodies))
	for _, body := range bodies {
		start := time.Now()
		answer, err := a(ctx, body)
		took = append(took, time.Since(start))
		if err == nil {
			err = check(k, answer)
		}
		if err == nil && k.Clients == 1 && !k.hit() {
			err = s.settle(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	return took, nil
}

// kase is one combination of the measured properties.
type kase struct {
	Transport string // "http" or "nats"
	Kind      string // one of kinds
	Places    int    // in one request
	Clients   int    // that ask at the same time

	requests int // the number of requests in a round, of all clients together
}

func (k kase) String() string {
	return fmt.Sprintf("%s/%s/%d/%d", k.Transport, k.Kind, k.Places, k.Clients)
}

func (k kase) hit() bool { return k.Kind != "miss" }

// cases lists the cases, in the order of the report.
func cases(o options) []kase {
	hits := map[int]int{1: 500, 10: 500, 100: 200}
	requests := map[string]map[int]int{"hit": hits, "stored": hits, "bare": hits, "miss": {1: 100, 10: 60, 100: 20}}
	var all []kase
	for _, clients := range []int{1, manyClients} {
		for _, transport := range []string{"http", "nats"} {
			for _, kind := range kinds {
				for _, places := range []int{1, 10, 100} {
					n := int(math.Ceil(float64(requests[kind][places]) * o.Scale))
					if clients > 1 && kind != "miss" {
						n *= 2
					}
					k := kase{Transport: transport, Kind: kind, Places: places, Clients: clients, requests: n}
					if o.Only.MatchString(k.String()) {
						all = append(all, k)
					}
				}
			}
		}
	}
	return all
}

// manyClients is the number of clients at the same time where throughput is measured.
const manyClients = 16

var columns = []rig.Column{
	{Figure: "request_p50_ms", Title: "p50 ms", Format: "%.3f", Spread: true},
	{Figure: "request_p99_ms", Title: "p99 ms", Format: "%.3f", Spread: true},
	{Figure: "cpu_us", Title: "CPU µs", Format: "%.0f", Spread: true},
	{Figure: "allocs", Title: "allocs", Format: "%.0f"},
	{Figure: "requests_per_s", Title: "req/s", Format: "%.0f", Spread: true},
}

// report writes a table for each number of clients.
func report(r *rig.Report, all []kase, got rig.Results) {
	for _, table := range []struct {
		clients int
		title   string
	}{
		{1, "One client, one request after the other (the jobs of a miss are done before the next request; req/s includes them)"},
		{manyClients, fmt.Sprintf("%d clients without a pause", manyClients)},
	} {
		var names []string
		for _, k := range all {
			if k.Clients == table.clients {
				names = append(names, k.String())
			}
		}
		r.Table(table.title+": over/kind/places/clients", columns, names, got)
	}
}
