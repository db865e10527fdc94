package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// Fault is a fault of a process, of its network or of a server. Do injects it, writes it into the effect log and returns when it is over.
type Fault struct {
	Name string
	Do   func(ctx context.Context, r *rand.Rand) error
}

// Inject injects faults one after the other, each of them once in every round of a random order, with a pause between 1 and 2 times as
// long before each, until ctx ends. It ends the last fault first.
func Inject(ctx context.Context, r *rand.Rand, pause time.Duration, faults ...Fault) error {
	for {
		for _, i := range r.Perm(len(faults)) {
			if !wait(ctx, between(r, pause)) {
				return nil
			}
			if err := faults[i].Do(context.WithoutCancel(ctx), r); err != nil {
				return fmt.Errorf("%s: %w", faults[i].Name, err)
			}
		}
	}
}

// between is a time from least to twice that.
func between(r *rand.Rand, least time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(least)+1))
}

// wait waits as long as a fault or a pause lasts, and reports whether ctx has not ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Group is a number of processes that do the same work and are replaced when they are killed. Each has a network to the servers.
type Group struct {
	t       testing.TB
	log     *Log
	servers string
	start   func(name, servers string) *Process

	mu      sync.Mutex
	all     []*Process
	names   []string
	started int
	nets    []*Network
}

// NewGroup starts n processes with start, which gets the name of a process for its entries of the log, and the URLs by which it reaches
// the servers. A process that replaces another has another name, and the same network.
func NewGroup(t testing.TB, log *Log, servers string, n int, start func(name, servers string) *Process) *Group {
	t.Helper()
	g := &Group{t: t, log: log, servers: servers, start: start, all: make([]*Process, n), names: make([]string, n)}
	for i := range n {
		g.nets = append(g.nets, NewNetwork(t, servers))
		g.replace(i)
	}
	return g
}

// replace starts a process in the place of one that is gone. g.mu is locked, or nobody else has g yet.
func (g *Group) replace(i int) {
	g.started++
	g.names[i] = fmt.Sprint("p", g.started)
	g.all[i] = g.start(g.names[i], g.nets[i].URLs)
}

// Processes returns the processes of now.
func (g *Group) Processes() []*Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.all)
}

// Stop asks all processes to end, and fails the test unless they do so without an error.
func (g *Group) Stop() {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	var stopped sync.WaitGroup
	for _, p := range g.all {
		stopped.Go(p.Stop)
	}
	stopped.Wait()
}

// Faults are those of a process: it is killed, frozen for between 1 and 2 times as long as the given time, and cut off for as long, in
// one direction or both.
func (g *Group) Faults(long time.Duration) []Fault {
	cut := func(name string, ways ...Direction) Fault {
		return g.fault(name, func(ctx context.Context, r *rand.Rand, i int) error {
			g.nets[i].Cut(ways...)
			wait(ctx, between(r, long))
			g.nets[i].Heal()
			return nil
		})
	}
	return []Fault{
		g.fault("process killed", func(_ context.Context, _ *rand.Rand, i int) error {
			err := g.all[i].Process.Kill()
			g.replace(i)
			return err
		}),
		g.fault("process frozen", func(ctx context.Context, r *rand.Rand, i int) error {
			err := g.all[i].Process.Pause(true)
			wait(ctx, between(r, long))
			return errors.Join(err, g.all[i].Process.Pause(false))
		}),
		cut("process cut off", ToServer, ToClient),
		cut("nothing reaches a process", ToClient),
		cut("nothing comes from a process", ToServer),
	}
}

// fault is a fault of one process that is chosen at random.
func (g *Group) fault(name string, do func(ctx context.Context, r *rand.Rand, i int) error) Fault {
	return Fault{Name: name, Do: func(ctx context.Context, r *rand.Rand) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		i := r.IntN(len(g.all))
		if err := g.log.Inject(name, g.names[i]); err != nil {
			return err
		}
		return do(ctx, r, i)
	}}
}
