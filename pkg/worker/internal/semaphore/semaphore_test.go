package semaphore

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSlotsGoToTheHighestRank(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		if !s.Acquire(0, nil, 0) {
			t.Fatal("no slot")
		}

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

			if i := <-got; i != want {
				t.Errorf("slot for waiter %d, want %d", i, want)
			}
		}
	})
}

func TestWaitEndsByTimeAndBySignal(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		s.Acquire(0, nil, 0)

		begun := time.Now()
		if s.Acquire(0, nil, time.Second) || time.Since(begun) != time.Second {
			t.Errorf("after %s, want no slot after 1s", time.Since(begun))
		}

		done := make(chan struct{})
		ended := make(chan bool)

		go func() { ended <- s.Acquire(0, done, 0) }()

		synctest.Wait()
		close(done)

		if <-ended {
			t.Error("a slot, want none")
		}

		// Waiters that gave up do not take the slot with them.
		s.Release()

		if !s.Acquire(0, nil, 0) {
			t.Error("no slot")
		}
	})
}
