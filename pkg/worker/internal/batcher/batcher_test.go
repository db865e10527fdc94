package batcher

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errGoexit = errors.New("goexit")

// TestEveryMemberIsServedOnce has members that come, leave and give up at random moments.
func TestEveryMemberIsServedOnce(t *testing.T) {
	t.Parallel()

	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)

	synctest.Test(t, func(t *testing.T) {
		const (
			n    = 2000
			size = 7
		)

		var (
			group  sync.WaitGroup
			mu     sync.Mutex
			served = map[int]int{}
			went   = map[int]bool{}
		)

		b := New[int](size, 10*time.Millisecond, errGoexit)
		random := rand.New(rand.NewPCG(uint64(seed), 0))

		for i := range n {
			comes, patience, leaves := time.Duration(random.IntN(int(time.Second))), time.Duration(random.IntN(int(20*time.Millisecond))), random.IntN(5) == 0

			group.Go(func() {
				time.Sleep(comes) //nolint:forbidigo // costs no real time in a bubble

				done := make(chan struct{})
				timer := time.AfterFunc(patience, func() { close(done) })
				defer timer.Stop()
				place := b.Join(i, done, nil)
				if place == nil || leaves {
					mu.Lock()
					went[i] = true
					mu.Unlock()

					if place != nil {
						place.Leave()
					}
					return
				}

				defer place.Leave()

				err := place.Run(func(members []int) error {
					mu.Lock()
					defer mu.Unlock()
					if len(members) > size {
						t.Errorf("a batch of %d, want at most %d", len(members), size)
					}

					for _, m := range members {
						served[m]++
					}
					return errors.ErrUnsupported
				})
				if !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("member %d got %v", i, err)
				}
			})
		}

		group.Wait()

		for i := range n {
			if served[i] == 1 == went[i] || served[i] > 1 {
				t.Errorf("member %d: served %d times, went %t", i, served[i], went[i])
			}
		}
	})
}

func TestGoexitIsTheErrorOfAll(t *testing.T) {
	t.Parallel()

	const n = 3

	b := New[int](n, time.Hour, errGoexit)
	ends := make(chan error, n)

	for i := range n {
		go func() {
			err := errGoexit // of the one whose goroutine ends
			defer func() { ends <- err }()

			err = b.Join(i, nil, nil).Run(func([]int) error {
				runtime.Goexit()
				return nil
			})
		}()
	}

	for range n {
		if err := <-ends; !errors.Is(err, errGoexit) {
			t.Errorf("%v, want the error of Goexit", err)
		}
	}
}
