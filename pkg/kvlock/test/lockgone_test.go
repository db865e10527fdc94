package kvlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A process that knew the bucket before it was made anew goes on with it.
func TestBucketMadeAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		one, two := b.Locker(t, kvlock.LockerConfig{TTL: 5 * time.Second}), b.Locker(t, kvlock.LockerConfig{TTL: 5 * time.Second})
		for range 50 {
			release(t, acquire(t, one, "l"))
		}
		before := acquire(t, one, "l")
		w := queue(t, two, "l", 1, kvlock.AcquireOptions{})
		b.MakeBucketAnew(t, time.Second) // no two buckets are made in the same nanosecond
		lease := patiently(t, w)
		check.That(t, lease.Token().Compare(before.Token()) > 0, "token %s after %s", lease.Token(), before.Token())
		check.Failsf(t, before.Context().Err(), "two hold the lock")
		release(t, lease)
		release(t, acquire(t, one, "l"))
	})
}

// The server cannot be reached: a new caller gets an error in time, and a waiter goes on waiting.
func TestLockWithoutServer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		l := b.Locker(t, kvlock.LockerConfig{TTL: 5 * time.Second}, p.Through())
		lease := acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
		w := queue(t, l, "l", 1, kvlock.AcquireOptions{})
		mine := acquire(t, l, "mine")
		p.Partition()
		pass(time.Second)
		wantErr(t, mine.Release(t.Context()), kvlock.ErrUnavailable)
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
			wantErr(t, try(), kvlock.ErrUnavailable)
			took := time.Since(start)
			check.That(t, took <= 3*time.Second, "%s took %s", name, took)
		}
		check.That(t, mine.Context().Err() != nil && mine.Remaining() == 0, "the lease has not ended")
		pass(time.Minute)
		p.Heal()
		release(t, lease)
		release(t, patiently(t, w))
		release(t, acquire(t, b.Locker(t, kvlock.LockerConfig{}), "mine"))
	})
}

// A caller that waits for less than OpTimeout does not take a server that is away for a lock that is held.
func TestShortWaitWithoutServer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		l := b.Locker(t, kvlock.LockerConfig{OpTimeout: time.Minute}, p.Through())
		lease := acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
		short := kvlock.AcquireOptions{Wait: time.Second}
		wantErr(t, check.Err(l.Acquire(t.Context(), "l", short)), kvlock.ErrHeld)
		p.Partition()
		wantErr(t, check.Err(l.Acquire(t.Context(), "l", short)), kvlock.ErrUnavailable)
		release(t, lease)
	})
}

// A Locker that closes while no server answers does not hang.
func TestLockerClosesWithoutServer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		l := b.Locker(t, kvlock.LockerConfig{}, p.Through())
		lease := acquire(t, l, "l")
		p.Partition()
		start := time.Now()
		l.Close()
		took := time.Since(start)
		check.That(t, took <= 5*time.Second, "took %s", took)
		wantErr(t, context.Cause(lease.Context()), kvlock.ErrClosed)
		wantErr(t, lease.Release(t.Context()), kvlock.ErrUnavailable)
	})
}

// A lock that is handed to a waiter that has given up goes on to the next at once.
func TestHandedToAWaiterThatGaveUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		lease := acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
		p := natstest.NewProxy(t, b.Srv)
		leaves := b.Locker(t, kvlock.LockerConfig{}, p.Through())
		w := queue(t, leaves, "l", 1, kvlock.AcquireOptions{Wait: 5 * time.Second})
		next := queue(t, b.Locker(t, kvlock.LockerConfig{}), "l", 2, kvlock.AcquireOptions{})
		p.Hit(writes("l"), natstest.WriteLost, 1) // that it leaves is lost, and sent again after a second
		<-w.Done
		wantErr(t, w.Err, kvlock.ErrHeld)
		pass(500 * time.Millisecond)
		start := time.Now()
		release(t, lease)
		release(t, patiently(t, next))
		took := time.Since(start)
		check.That(t, took <= 900*time.Millisecond, "handed on after %s", took)
	})
}

// A record that is gone without a release does not make the lock free before its holder knows.
func TestRecordIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		holder, gone := died(t, b, kvlock.LockerConfig{TTL: 10 * time.Second})
		lease := acquire(t, holder, "l")
		other := b.Locker(t, kvlock.LockerConfig{})
		w := queue(t, other, "l", 1, kvlock.AcquireOptions{})
		gone()
		stream := check.Must(b.JS.Stream(t.Context(), "KV_"+bucket))(t)
		check.OK(t, stream.Purge(t.Context()))
		next := patiently(t, w)
		check.Failsf(t, lease.Context().Err(), "two hold the lock")
		release(t, next)
	})
}
