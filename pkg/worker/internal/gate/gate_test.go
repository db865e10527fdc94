package gate

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSlotsGoToTheMostImportant(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		g := New(1)
		if !g.Take(0, nil, 0) {
			t.Fatal("no slot")
		}

		got := make(chan int, 4)

		for i, rank := range []int{-1, 0, 1, 0} {
			go func() {
				g.Take(rank, nil, 0)

				got <- i
			}()

			synctest.Wait()
		}

		for _, want := range []int{2, 1, 3, 0} {
			g.Give()

			if i := <-got; i != want {
				t.Errorf("slot for waiter %d, want %d", i, want)
			}
		}
	})
}

func TestWaitEndsByTimeAndBySignal(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		g := New(1)
		g.Take(0, nil, 0)

		begun := time.Now()
		if g.Take(0, nil, time.Second) || time.Since(begun) != time.Second {
			t.Errorf("after %s, want no slot after 1s", time.Since(begun))
		}

		done := make(chan struct{})
		ended := make(chan bool)

		go func() { ended <- g.Take(0, done, 0) }()

		synctest.Wait()
		close(done)

		if <-ended {
			t.Error("a slot, want none")
		}

		// Those that went do not take the slot with them.
		g.Give()

		if !g.Take(0, nil, 0) {
			t.Error("no slot")
		}
	})
}
