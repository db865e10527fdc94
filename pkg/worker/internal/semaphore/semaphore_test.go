package semaphore

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSlotsGoToTheHighestRank(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		check.Require(t, s.Acquire(0, nil, 0), "no slot")
		got := make(chan int, 4)
		for i, rank := range []int{-1, 0, 1, 0} {
			go func() {
				s.Acquire(rank, nil, 0)
				got <- i
			}()
			synctest.Wait()
		}
		for _, want := range []int{2, 1, 3, 0} {
			s.Release()
			check.Same(t, "slot for waiter", <-got, want)
		}
	})
}

func TestWaitEndsByTimeAndBySignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		s.Acquire(0, nil, 0)
		begun := time.Now()
		check.That(t, !s.Acquire(0, nil, time.Second) && time.Since(begun) == time.Second, "after %s, want no slot after 1s", time.Since(begun))
		done := make(chan struct{})
		ended := make(chan bool)
		go func() { ended <- s.Acquire(0, done, 0) }()
		synctest.Wait()
		close(done)
		check.That(t, !<-ended, "a slot, want none")
		// Waiters that gave up do not take the slot with them.
		s.Release()
		check.That(t, s.Acquire(0, nil, 0), "no slot")
	})
}
