package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestSlotsGoToTheHighestRank(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slots{free: 1}
		check.Require(t, s.acquire(0, nil, 0), "no slot")
		got := make(chan int, 4)
		for i, rank := range []int{-1, 0, 1, 0} {
			go func() {
				s.acquire(rank, nil, 0)
				got <- i
			}()
			synctest.Wait()
		}
		for _, want := range []int{2, 1, 3, 0} {
			s.release()
			check.Same(t, "slot for waiter", <-got, want)
		}
	})
}

func TestWaitEndsByTimeAndBySignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slots{free: 1}
		s.acquire(0, nil, 0)
		begun := time.Now()
		check.That(t, !s.acquire(0, nil, time.Second) && time.Since(begun) == time.Second, "after %s, want no slot after 1s", time.Since(begun))
		done := make(chan struct{})
		ended := make(chan bool)
		go func() { ended <- s.acquire(0, done, 0) }()
		synctest.Wait()
		close(done)
		check.That(t, !<-ended, "a slot, want none")
		// Waiters that gave up do not take the slot with them.
		s.release()
		check.That(t, s.acquire(0, nil, 0), "no slot")
	})
}
