package worker

import (
	"slices"
	"sync"
	"time"
)

// slots are the slots of a worker: a semaphore that serves the waiter with the highest rank first.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting []*waiter // the highest rank first, then the oldest
}

type waiter struct {
	given chan struct{} // closed with a slot
	rank  int
}

// acquire waits for a slot, and reports whether it got one before done was closed and limit passed. A limit of 0 is none.
// The waiter with the highest rank gets a slot first.
func (s *slots) acquire(rank int, done <-chan struct{}, limit time.Duration) bool {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return true
	}
	w := &waiter{given: make(chan struct{}), rank: rank}
	i := slices.IndexFunc(s.waiting, func(other *waiter) bool { return other.rank < rank })
	if i < 0 {
		i = len(s.waiting)
	}
	s.waiting = slices.Insert(s.waiting, i, w)
	s.mu.Unlock()
	return s.wait(w, done, limit)
}

// tryAcquire takes a slot if one is free, and reports whether it did.
func (s *slots) tryAcquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return false
	}
	s.free--
	return true
}

func (s *slots) wait(w *waiter, done <-chan struct{}, limit time.Duration) bool {
	var late <-chan time.Time
	if limit > 0 {
		late = time.After(limit)
	}
	select {
	case <-w.given:
		return true
	case <-done:
	case <-late:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return true // the slot was given meanwhile
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return false
}

// release returns a slot.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.free++
		return
	}
	close(s.waiting[0].given)
	s.waiting = slices.Delete(s.waiting, 0, 1)
}
