package chaos_test

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// A process that holds a lock is stopped for longer than its TTL. It looks at its lease's context thousands of times a
// second, and when it goes on, none of these looks shows a live lease, because another process has the lock by then.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	times := 3
	if crash.Long() {
		times = 40
	}
	srv := crash.StartServer(t)
	r := crash.Random(t)(0)
	s := newStage(t, srv.URL, 1, workerTask{TTL: time.Second, Tasks: 1, HoldUntilLost: true}, 2)
	for range times {
		c := s.holder()
		sleep(t.Context(), time.Duration(r.Int64N(int64(100*time.Millisecond))))
		c.Pause()
		sleep(t.Context(), between(r, 1200*time.Millisecond))
		c.Continue()
	}
	for _, c := range s.workers {
		c.kill()
	}
	s.report()
	if n := len(s.history.holds()[lockNames[0]]); n <= times {
		t.Errorf("%d leases in %d stops", n, times)
	}
	for _, all := range s.history.holds() {
		checkOverlap(t, all, s.start)
	}
}

// holder waits until a lease has begun that was not there before, and returns whose it is.
func (s *stage) holder() *child {
	s.t.Helper()
	for s.t.Context().Err() == nil {
		s.mu.Lock()
		var latest event
		leases := 0
		for _, e := range s.history.events {
			if e.Kind == acquired {
				latest = e
				leases++
			}
		}
		s.mu.Unlock()
		for _, c := range s.workers {
			if leases > s.leases && latest.By[:len(c.name)] == c.name {
				s.leases = leases
				return c
			}
		}
		sleep(s.t.Context(), 5*time.Millisecond)
	}
	s.t.Fatal("nobody holds the lock")
	return nil
}
