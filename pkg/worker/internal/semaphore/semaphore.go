// Package semaphore implements a semaphore with priorities. It hands out the slots of a worker, to the highest rank first.
package semaphore

import (
	"slices"
	"sync"
	"time"
)

// Priority is a semaphore whose waiters have ranks. Make it with New.
type Priority struct {
	mu      sync.Mutex
	free    int
	waiting []*waiter // the highest rank first, then the oldest
}

type waiter struct {
	given chan struct{} // closed with a slot
	rank  int
}

// New returns a semaphore with n slots.
func New(n int) *Priority { return &Priority{free: n} }

// Acquire waits for a slot, and reports whether it got one before done was closed and limit passed. A limit of 0 is none.
// The waiter with the highest rank gets a slot first.
func (p *Priority) Acquire(rank int, done <-chan struct{}, limit time.Duration) bool {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.mu.Unlock()
		return true
	}
	w := &waiter{given: make(chan struct{}), rank: rank}
	i := slices.IndexFunc(p.waiting, func(other *waiter) bool { return other.rank < rank })
	if i < 0 {
		i = len(p.waiting)
	}
	p.waiting = slices.Insert(p.waiting, i, w)
	p.mu.Unlock()
	return p.wait(w, done, limit)
}

// TryAcquire takes a slot if one is free, and reports whether it did.
func (p *Priority) TryAcquire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == 0 {
		return false
	}
	p.free--
	return true
}

func (p *Priority) wait(w *waiter, done <-chan struct{}, limit time.Duration) bool {
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
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i < 0 {
		return true // the slot was given meanwhile
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	return false
}

// Release returns a slot.
func (p *Priority) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		p.free++
		return
	}
	close(p.waiting[0].given)
	p.waiting = slices.Delete(p.waiting, 0, 1)
}
