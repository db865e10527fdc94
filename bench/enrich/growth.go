package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// hitAmongPlaces is an answer that has ten known places, while ever more are known.
const hitAmongPlaces rig.Growth = "hit_places"

const (
	fewestPlaces = 500
	grownHits    = 2000 // requests at each size
	grownBodies  = 200  // that differ, spread over all known places
)

// grown returns the kinds of enrichers that are measured beside growing numbers of known places.
func (o options) grown() (names []string) {
	for _, name := range []string{"growth/hit", "growth/stored"} {
		if o.Only.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

func growthColumns() []rig.Column {
	columns := hitAmongPlaces.Columns("hit")
	for _, times := range rig.Times {
		title := fmt.Sprintf("× %d", times)
		if times == 1 {
			title = "live heap MB"
		}
		columns = append(columns, rig.Column{Figure: fmt.Sprintf("growth_heap_mb_x%d", times), Title: title, Format: "%.1f"})
	}
	return append(columns, hitAmongPlaces.Memory()...)
}

// grow measures an enricher in this process, with its server in another, so that the memory is its own and that of its clients.
func grow(ctx context.Context, o options, name string) (f rig.Figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	servers, err := rig.NewStand(nil)
	if err != nil {
		return nil, err
	}
	defer servers.Close()
	server, err := servers.Service(ctx, "nats")
	if err != nil {
		return nil, err
	}
	s, err := newStand(ctx, name[len("growth/"):], o.memory, server.Address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	f = rig.Figures{}
	for _, times := range rig.Times {
		known := max(10, int(fewestPlaces*o.Scale)) * times
		if err := s.learn(ctx, known); err != nil {
			return nil, err
		}
		bodies := make([][]byte, grownBodies)
		for i := range bodies {
			ids := make([]int, 10)
			for j := range ids {
				ids[j] = (i*len(ids) + j) * max(1, known/grownBodies/len(ids)) % known
			}
			bodies[i] = body(ids)
		}
		n := max(1, int(grownHits*o.Scale))
		if err := s.hit(ctx, bodies, len(bodies)); err != nil { // have them in memory, if it has room
			return nil, err
		}
		before := rig.WorkOf(server)
		if err := s.hit(ctx, bodies, n); err != nil {
			return nil, err
		}
		hitAmongPlaces.Add(f, times, server, before, n)
		hitAmongPlaces.Hold(f, times, rig.OwnBytes(), server)
		f[fmt.Sprintf("growth_heap_mb_x%d", times)] = liveHeap() / 1e6
	}
	return f, nil
}

// learn makes places known until n are.
func (s *stand) learn(ctx context.Context, n int) error {
	for s.ids < n {
		if _, err := s.askers["nats"][0].ask(ctx, body(s.newIDs(min(100, n-s.ids)))); err != nil {
			return err
		}
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hit asks n times for known places.
func (s *stand) hit(ctx context.Context, bodies [][]byte, n int) error {
	for i := range n {
		answer, err := s.askers["nats"][0].ask(ctx, bodies[i%len(bodies)])
		if err == nil {
			err = check(kase{Kind: "hit"}, answer)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// liveHeap returns the bytes of reachable objects.
func liveHeap() float64 {
	runtime.GC()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return float64(live[0].Value.Uint64())
}
