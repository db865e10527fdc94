// Package gate hands out the slots of a worker, the most important first.
package gate

import (
	"slices"
	"sync"
	"time"
)

// Gate has a number of slots. Make it with New.
type Gate struct {
	mu      sync.Mutex
	free    int
	waiting []*waiter // the most important first, then the oldest
}

type waiter struct {
	given chan struct{} // closed with a slot
	rank  int
}

// New returns a gate with n slots.
func New(n int) *Gate { return &Gate{free: n} }

// Take waits for a slot and reports true, or false when done is closed or limit passes
// first. No limit is 0. Of several who wait the one with the highest rank is served first.
func (g *Gate) Take(rank int, done <-chan struct{}, limit time.Duration) bool {
	g.mu.Lock()

	if g.free > 0 {
		g.free--
		g.mu.Unlock()

		return true
	}

	w := &waiter{given: make(chan struct{}), rank: rank}
	i := slices.IndexFunc(g.waiting, func(other *waiter) bool { return other.rank < rank })

	if i < 0 {
		i = len(g.waiting)
	}

	g.waiting = slices.Insert(g.waiting, i, w)
	g.mu.Unlock()

	return g.wait(w, done, limit)
}

// Try takes a slot if there is one, and reports whether there was.
func (g *Gate) Try() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.free == 0 {
		return false
	}

	g.free--

	return true
}

func (g *Gate) wait(w *waiter, done <-chan struct{}, limit time.Duration) bool {
	var late <-chan time.Time

	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()

		late = timer.C
	}

	select {
	case <-w.given:
		return true
	case <-done:
	case <-late:
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	i := slices.Index(g.waiting, w)
	if i < 0 {
		return true // it was given one meanwhile
	}

	g.waiting = slices.Delete(g.waiting, i, i+1)

	return false
}

// Give returns a slot.
func (g *Gate) Give() {
	g.mu.Lock()
	defer g.mu.Unlock()

	if len(g.waiting) == 0 {
		g.free++

		return
	}

	close(g.waiting[0].given)
	g.waiting = slices.Delete(g.waiting, 0, 1)
}
