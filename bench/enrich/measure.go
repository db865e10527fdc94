package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// timeout bounds one round.
const timeout = 5 * time.Minute

// sample is what one case came to in one round.
type sample struct {
	p50, p99  float64 // milliseconds
	cpu       float64 // microseconds for each request
	allocated float64 // allocations for each request
	rate      float64 // requests in a second
}

// measure runs the rounds and writes the report.
func measure(out io.Writer, o options) (report, error) {
	all := cases(o)
	if len(all) == 0 {
		return report{}, fmt.Errorf("no case matches --only %q", o.only)
	}
	p := &printer{out: out}
	load := loadAverage()
	p.head(o, load)
	samples := make([][]sample, len(all))
	for n := range o.rounds {
		if err := round(o, all, samples, n); err != nil {
			return report{}, err
		}
		p.round(n, o.rounds)
	}
	result := newReport(all, samples, o.rounds)
	result.Load = load
	p.body(result)
	return result, p.err
}

// round runs every case once, on a server of its own. Every other round goes through them backwards, so that nothing
// always comes after the same.
func round(o options, all []kase, samples [][]sample, n int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s, err := newStand(ctx, o.memory)
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
		if n%2 == 1 {
			i = len(all) - 1 - i
		}
		one, err := runCase(ctx, s, all[i], known)
		if err != nil {
			return fmt.Errorf("%s: %w", all[i], err)
		}
		samples[i] = append(samples[i], one)
	}
	return nil
}

// warm makes the places known, and opens every connection.
func warm(ctx context.Context, s *stand, known []int) error {
	if _, err := s.askers["http"][0].ask(ctx, body(known)); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	request := body(known[:10])
	for transport, askers := range s.askers {
		for _, a := range askers {
			for range 20 {
				answer, err := a.ask(ctx, request)
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

func runCase(ctx context.Context, s *stand, k kase, known []int) (sample, error) {
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
	cpu, start := cpuTime(), time.Now()
	took, err := askAll(ctx, s, k, bodies)
	if err != nil {
		return sample{}, err
	}
	elapsed := time.Since(start)
	if err := s.settle(ctx); err != nil {
		return sample{}, err
	}
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	n := float64(len(took))
	slices.Sort(took)
	return sample{
		p50: milliseconds(took[len(took)/2]), p99: milliseconds(took[len(took)*99/100]),
		cpu: float64(cpu.Microseconds()) / n, allocated: float64(after.Mallocs-before.Mallocs) / n, rate: n / elapsed.Seconds(),
	}, nil
}

// askAll asks everything and returns what each answer took.
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
		answer, err := a.ask(ctx, body)
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

// cpuTime is what this process has spent, in user and in system mode.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
