package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// many is the number of clients that hand a lock to each other.
const many = 32

// hold is the time for which each of them holds the lock.
const hold = time.Millisecond

// lockUnlock measures a lock that no other client wants.
func lockUnlock(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	return b.repeat(b.n(1000), "lock_unlock", "us", func() error { return b.cycle(ctx, c) })
}

// cycle locks and unlocks a lock that no other client wants.
func (b *bench) cycle(ctx context.Context, c *client) error {
	unlock, err := c.lock(ctx, b.name("lock"))
	if err != nil {
		return err
	}
	return unlock(ctx)
}

// wake measures the time from before one client releases the lock until another, which has just begun to wait for it, has it.
func wake(ctx context.Context, b *bench) (rig.Figures, error) {
	n := b.n(100)
	if b.contestant.settle > settles {
		n = b.n(20) // in about as much time
	}
	clients, err := b.clients(ctx, 2)
	if err != nil {
		return nil, err
	}
	taken := make([]time.Duration, 0, n)
	name := b.name("wake")
	for range n {
		unlock, err := clients[0].lock(ctx, name)
		if err != nil {
			return nil, err
		}
		var at time.Time
		woken := make(chan error, 1)
		go func() {
			unlock, err := clients[1].lock(ctx, name)
			at = time.Now()
			if err == nil {
				err = unlock(ctx)
			}
			woken <- err
		}()
		time.Sleep(b.contestant.settle) // it waits by now
		start := time.Now()
		if err := errors.Join(unlock(ctx), <-woken); err != nil {
			return nil, err
		}
		taken = append(taken, at.Sub(start))
	}
	f := rig.Figures{}
	f.Quantiles("wake", "us", taken)
	return f, nil
}

// handover measures 32 clients that want one lock all the time.
func handover(ctx context.Context, b *bench) (rig.Figures, error) {
	clients, err := b.clients(ctx, many)
	if err != nil {
		return nil, err
	}
	t := &turns{counts: make([]int, many), last: -1, start: time.Now()}
	name := b.name("handover")
	timed, cancel := context.WithTimeout(ctx, max(time.Second, b.d(5*time.Second)))
	defer cancel()
	before := rig.WorkOf(b.service)
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			for timed.Err() == nil {
				unlock, err := c.lock(timed, name)
				if err != nil {
					if timed.Err() == nil {
						t.failed(err)
						cancel()
					}
					return
				}
				t.enter(i, timed.Err() == nil)
				time.Sleep(hold)
				t.leave()
				if err := unlock(ctx); err != nil {
					t.failed(err)
				}
			}
		})
	}
	all.Wait()
	return t.figures(b, before)
}

// turns records the holders of the lock.
type turns struct {
	mu       sync.Mutex
	counts   []int
	err      error
	first    time.Time
	last     int // the client that had it
	released time.Time
	same     int // the number of times that it stayed with the same client
	start    time.Time
	settled  bool // every client has had a turn, or a while has passed: the next turns count
	taken    []time.Duration
	within   int // the number of clients that have it: more than one is a failure
}

func (t *turns) enter(i int, counts bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.within++; t.within > 1 {
		t.err = errors.Join(t.err, fmt.Errorf("%d had the lock at once", t.within))
	}
	if !counts {
		return
	}
	if !t.settled {
		t.counts[i]++
		if t.settled = slices.Min(t.counts) > 0 || now.Sub(t.start) > time.Second/2; t.settled {
			clear(t.counts)
		}
		return
	}
	if t.last >= 0 {
		t.taken = append(t.taken, now.Sub(t.released))
	} else {
		t.first = now
	}
	if t.last == i {
		t.same++
	}
	t.counts[i]++
	t.last = i
}

func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.within--
	t.released = time.Now()
}

func (t *turns) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = errors.Join(t.err, err)
}

func (t *turns) figures(b *bench, before rig.Work) (rig.Figures, error) {
	f := rig.Figures{}
	if t.err != nil || len(t.taken) == 0 {
		return nil, errors.Join(t.err, fmt.Errorf("%d turns", len(t.taken)))
	}
	n := len(t.taken)
	f.Since("handover", b.service, before, n)
	f.Quantiles("handover", "us", t.taken)
	f["handover_per_s"] = float64(n) / t.released.Sub(t.first).Seconds()
	f["handover_same_percent"] = 100 * float64(t.same) / float64(n)
	f["handover_min"], f["handover_max"] = float64(slices.Min(t.counts)), float64(slices.Max(t.counts))
	f["fairness"] = f["handover_min"] / f["handover_max"]
	return f, nil
}
