package worker

import (
	"math"
	"sync"
	"time"
)

// watch knows since when this worker has seen everything that its consumer delivered.
//
// The server counts deliveries, but one without replicas may forget the latest of them when
// it crashes: a job that had been at work then comes as if for the first time. Only of a
// message that was stored after the worker came into touch with the server the count is
// certain. Both times are the server's.
type watch struct {
	mu    sync.Mutex
	since int64 // in Unix nanoseconds, math.MaxInt64 for not yet
	turn  int   // counts the breaks, so that an answer from before one says nothing after it
}

// lose notes that the server is out of touch.
func (s *watch) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.since = math.MaxInt64
	s.turn++
}

func (s *watch) covers(stored time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return stored.UnixNano() > s.since
}

// begin returns what is to be called with the server's time of now.
func (s *watch) begin() func(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()

	turn := s.turn

	return func(now time.Time) {
		s.mu.Lock()
		defer s.mu.Unlock()

		if s.turn == turn {
			s.since = now.UnixNano()
		}
	}
}

// isFirst reports whether certainly no worker has had the message before.
func (w *Worker) isFirst(d *delivery) bool { return d.first <= 1 && w.watch.covers(d.info.EnqueuedAt) }
