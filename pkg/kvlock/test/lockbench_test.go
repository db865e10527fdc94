package kvlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// lockBed is a server behind TCP on the loopback with its files in memory, and n Lockers with connections of their own.
func lockBed(b *testing.B, n int) []*kvlock.Locker {
	b.Helper()
	srv := natstest.Server(b, func(c *natsrun.Config) { c.Listen, c.Memory = true, true })
	bedOn(b, srv, kvlock.BucketConfig{Bucket: bucket})
	lockers := make([]*kvlock.Locker, n)
	for i := range lockers {
		_, js := natstest.ConnectURL(b, srv.URL())
		lockers[i] = lockerOn(b, js, kvlock.LockerConfig{Instance: fmt.Sprint(i)})
	}
	return lockers
}

func report(b *testing.B, took []time.Duration) {
	b.Helper()
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

func BenchmarkLockUnlock(b *testing.B) {
	l := lockBed(b, 1)[0]
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		lease, err := l.Acquire(b.Context(), "l", kvlock.AcquireOptions{})
		check.OK(b, err)
		check.OK(b, lease.Release(b.Context()))
		took = append(took, time.Since(start))
	}
	report(b, took)
}

// BenchmarkLockWake measures from before Release is called in one process until a waiter in another has the lock.
func BenchmarkLockWake(b *testing.B) {
	lockers := lockBed(b, 2)
	var took []time.Duration
	for b.Loop() {
		lease := acquire(b, lockers[0], "l")
		woken := make(chan time.Time, 1)
		go func() {
			defer close(woken)
			lease, err := lockers[1].Acquire(b.Context(), "l", kvlock.AcquireOptions{})
			now := time.Now()
			if err != nil {
				b.Error(err)
				return
			}
			release(b, lease)
			woken <- now
		}()
		for places(inspect(b, lockers[0], "l")) != 1 { //nolint:revive // each look is a round trip: until the other waits
		}
		start := time.Now()
		release(b, lease)
		took = append(took, (<-woken).Sub(start))
	}
	report(b, took)
}

// BenchmarkHandOver is 32 clients that hold the lock for a millisecond each, as often as they get it.
func BenchmarkHandOver(b *testing.B) {
	const clients = 32
	lockers := lockBed(b, clients)
	counts := make([]int, clients)
	var mu sync.Mutex
	var took []time.Duration
	var free time.Time
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var all sync.WaitGroup
	n := 0
	start := time.Now()
	for i, l := range lockers {
		all.Go(func() {
			for ctx.Err() == nil {
				lease, err := l.Acquire(ctx, "l", kvlock.AcquireOptions{})
				if err != nil {
					return
				}
				mu.Lock()
				if !free.IsZero() {
					took = append(took, time.Since(free))
				}
				counts[i]++
				n++
				if n == b.N {
					cancel()
				}
				mu.Unlock()
				<-time.After(time.Millisecond) // the work
				mu.Lock()
				free = time.Now()
				mu.Unlock()
				check.Is(b, lease.Release(b.Context()), nil)
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "hand-overs/s")
	b.ReportMetric(float64(slices.Min(counts))/float64(slices.Max(counts)), "min/max")
	report(b, took)
}
