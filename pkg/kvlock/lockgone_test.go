package kvlock_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The server cannot be reached: a new caller gets an error in time, and a waiter goes on waiting.
func TestLockWithoutServer(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		l, p := b.ProxiedLocker(t, kvlock.LockerConfig{TTL: 5 * time.Second})
		lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
		w := testbed.Queue(t, l, "l", 1, kvlock.AcquireOptions{})
		mine := testbed.Acquire(t, l, "mine")
		p.Partition()
		natstest.Pass(time.Second)
		check.ErrorIs(t, mine.Release(t.Context()), kvlock.ErrUnavailable)
		for name, try := range map[string]func() error{
			"Acquire":    func() error { return check.Err(l.Acquire(t.Context(), "new", kvlock.AcquireOptions{})) },
			"TryAcquire": func() error { return check.Err(l.TryAcquire(t.Context(), "new", kvlock.AcquireOptions{})) },
			"Steal":      func() error { return check.Err(l.Steal(t.Context(), "new", kvlock.AcquireOptions{})) },
			"Inspect":    func() error { return check.Err(l.Inspect(t.Context(), "new")) },
			"List": func() error {
				for _, err := range l.List(t.Context(), "") {
					return err
				}
				return nil
			},
		} {
			start := time.Now()
			check.ErrorIs(t, try(), kvlock.ErrUnavailable)
			testbed.Took(t, name, start, 0, 3*time.Second)
		}
		check.That(t, mine.Context().Err() != nil, "the lease has not ended")
		natstest.Pass(time.Minute)
		p.Heal()
		testbed.Release(t, lease)
		testbed.Release(t, testbed.GotEventually(t, w))
		testbed.Release(t, testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "mine"))
	})
}

// A caller that waits for less than OpTimeout does not take a server that is away for a lock that is held.
func TestShortWaitWithoutServer(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		l, p := b.ProxiedLocker(t, kvlock.LockerConfig{OpTimeout: time.Minute})
		lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
		short := kvlock.AcquireOptions{Wait: time.Second}
		check.ErrorIs(t, check.Err(l.Acquire(t.Context(), "l", short)), kvlock.ErrHeld)
		p.Partition()
		natstest.Pass(time.Millisecond) // the last answer was to a question from before the next caller comes
		check.ErrorIs(t, check.Err(l.Acquire(t.Context(), "l", short)), kvlock.ErrUnavailable)
		testbed.Release(t, lease)
	})
}

// A Locker that closes while no server answers does not hang.
func TestLockerClosesWithoutServer(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		l, p := b.ProxiedLocker(t, kvlock.LockerConfig{})
		lease := testbed.Acquire(t, l, "l")
		p.Partition()
		start := time.Now()
		l.Close()
		testbed.Took(t, "closed", start, 0, 5*time.Second)
		check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrClosed)
		check.ErrorIs(t, lease.Release(t.Context()), kvlock.ErrUnavailable)
	})
}

// A lock that is handed to a waiter that has given up goes on to the next at once.
func TestHandedToAWaiterThatGaveUp(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
		leaves, p := b.ProxiedLocker(t, kvlock.LockerConfig{})
		w := testbed.Queue(t, leaves, "l", 1, kvlock.AcquireOptions{Wait: 5 * time.Second})
		next := testbed.Queue(t, b.Locker(t, kvlock.LockerConfig{}), "l", 2, kvlock.AcquireOptions{})
		p.Hit(testbed.Writes("l"), natstest.WriteLost, 1) // that it leaves is lost, and sent again after a second
		<-w.Done
		check.ErrorIs(t, w.Err, kvlock.ErrHeld)
		natstest.Pass(500 * time.Millisecond)
		start := time.Now()
		testbed.Release(t, lease)
		testbed.Release(t, testbed.GotEventually(t, next))
		testbed.Took(t, "handed on", start, 0, 900*time.Millisecond)
	})
}

// A record that is gone without a release does not make the lock free before its holder knows.
func TestRecordIsGone(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		holder, cutOff := testbed.CuttableLocker(t, b, kvlock.LockerConfig{TTL: 10 * time.Second})
		lease := testbed.Acquire(t, holder, "l")
		other := b.Locker(t, kvlock.LockerConfig{})
		w := testbed.Queue(t, other, "l", 1, kvlock.AcquireOptions{})
		cutOff()
		stream := check.Must(b.JS.Stream(t.Context(), "KV_"+testbed.Bucket))(t)
		check.OK(t, stream.Purge(t.Context()))
		next := testbed.GotEventually(t, w)
		check.That(t, lease.Context().Err() != nil, "two hold the lock")
		testbed.Release(t, next)
	})
}

// Ten thousand wait for one lock in one process, and others for a lock each: with one subscription, and little memory
// for each. All are served.
func TestTenThousandWaitForALock(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 waiters: not with -short")
	}
	for _, names := range []int{1, 2000} {
		t.Run(fmt.Sprint(names), func(t *testing.T) {
			waiters := 10_000
			if names > 1 {
				waiters = names
			}
			b := testbed.New(t)
			holder := b.Locker(t, kvlock.LockerConfig{TTL: 10 * time.Minute})
			l, p := b.ProxiedLocker(t, kvlock.LockerConfig{OpTimeout: 3 * time.Minute})
			leases := make([]*kvlock.Lease, names)
			for i := range leases {
				leases[i] = testbed.Acquire(t, holder, fmt.Sprint("l", i))
			}
			testbed.Inspect(t, l, "l0") // earlier subscriptions have passed the proxy then
			subscriptions := p.Subscriptions()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			before := heap()
			var all sync.WaitGroup
			var served atomic.Int64
			for i := range waiters {
				all.Go(func() {
					lease := check.Must(l.Acquire(ctx, fmt.Sprint("l", i%names), kvlock.AcquireOptions{}))(t)
					served.Add(1)
					check.ErrorIs(t, lease.Release(ctx), nil)
				})
			}
			for i := range names {
				for testbed.Places(testbed.Inspect(t, l, fmt.Sprint("l", i))) != waiters/names {
					check.Require(t, ctx.Err() == nil, "not all wait")
					runtime.Gosched()
				}
			}
			used := heap() - before
			t.Logf("%d MB for the waiters", used>>20)
			check.That(t, used <= 60<<20, "%d MB for the waiters", used>>20)
			n := p.Subscriptions() - subscriptions
			check.That(t, n <= 1, "%d subscriptions for the waiters", n)
			for _, lease := range leases {
				testbed.Release(t, lease)
			}
			all.Wait()
			check.Equal(t, served.Load(), int64(waiters), "served.Load()")
		})
	}
}

// heap returns the bytes that this process uses on the heap and for its goroutines' stacks.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
