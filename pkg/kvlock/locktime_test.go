package kvlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A waiter takes over when the holder's TTL has passed since its last renewal, and not a TTL after that.
func TestDeadHolder(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Hour} {
		if testing.Short() && ttl > 30*time.Second {
			continue
		}
		testbed.RunInBubble(t, ttl.String(), func(t *testing.T, b *testbed.Bed) {
			dead, cutOff := testbed.CuttableLocker(t, b, kvlock.LockerConfig{TTL: ttl})
			first := testbed.Acquire(t, dead, "l")
			one, two := b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{})
			head := testbed.Queue(t, one, "l", 1, kvlock.AcquireOptions{})
			second := testbed.Queue(t, two, "l", 2, kvlock.AcquireOptions{})
			natstest.Pass(ttl) // while it is renewed
			cutOff()
			start := time.Now()
			natstest.Pass(ttl / 3)
			third := testbed.Queue(t, b.Locker(t, kvlock.LockerConfig{}), "l", 3, kvlock.AcquireOptions{}) // a write that is no renewal
			lease := testbed.GotEventually(t, head)
			testbed.Took(t, "took over", start, ttl*2/3-10*time.Millisecond, ttl+100*time.Millisecond)
			check.That(t, first.Context().Err() != nil, "the dead holder's context has not ended")
			testbed.Release(t, lease)
			testbed.Release(t, testbed.GotEventually(t, second))
			testbed.Release(t, testbed.GotEventually(t, third))
		})
	}
}

// Processes that were killed while they waited cost those behind them a second, however many they are, and cost it once.
func TestManyDeadWaiters(t *testing.T) {
	for _, kill := range []string{"waiters", "holder too"} {
		if testing.Short() && kill == "waiters" {
			continue
		}
		testbed.RunInBubble(t, kill, func(t *testing.T, b *testbed.Bed) {
			const dead, ttl = 100, 10 * time.Second
			var conns []*nats.Conn
			killable := func() *kvlock.Locker {
				nc, js := natstest.Connect(t, b.Srv)
				conns = append(conns, nc)
				return testbed.LockerOn(t, js, kvlock.LockerConfig{TTL: ttl})
			}
			most, holder := 1200*time.Millisecond, killable()
			lease := testbed.Acquire(t, holder, "l")
			for i := range dead {
				testbed.Queue(t, killable(), "l", i+1, kvlock.AcquireOptions{})
			}
			var live []*testbed.Waiting
			for i := range 3 {
				live = append(live, testbed.Queue(t, b.Locker(t, kvlock.LockerConfig{}), "l", dead+1+i, kvlock.AcquireOptions{}))
			}
			for _, nc := range conns[1:] {
				nc.Close()
			}
			start := time.Now()
			if kill == "waiters" {
				testbed.Release(t, lease)
			} else {
				conns[0].Close()
				most += ttl - time.Second
			}
			testbed.Release(t, testbed.GotEventually(t, live[0]))
			testbed.Took(t, "the first that lives has the lock", start, 0, most)
			start = time.Now()
			for _, w := range live[1:] {
				testbed.Release(t, testbed.GotEventually(t, w))
			}
			testbed.Release(t, testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l"))
			testbed.Took(t, "those behind it have the lock", start, 0, 100*time.Millisecond)
		})
	}
}

// The process that held the lock died, and so did those first in the queue. The first that lives takes over, a moment
// later for each of them.
func TestDeadHolderAndDeadHead(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		const ttl = 10 * time.Second
		holder, cutOff := testbed.CuttableLocker(t, b, kvlock.LockerConfig{TTL: ttl})
		testbed.Acquire(t, holder, "l")
		one, oneGone := testbed.CuttableLocker(t, b, kvlock.LockerConfig{})
		two, twoGone := testbed.CuttableLocker(t, b, kvlock.LockerConfig{})
		testbed.Queue(t, one, "l", 1, kvlock.AcquireOptions{})
		testbed.Queue(t, two, "l", 2, kvlock.AcquireOptions{})
		testbed.Queue(t, two, "l", 3, kvlock.AcquireOptions{})
		lives := b.Locker(t, kvlock.LockerConfig{})
		w := testbed.Queue(t, lives, "l", 4, kvlock.AcquireOptions{})
		cutOff()
		oneGone()
		twoGone()
		start := time.Now()
		lease := testbed.GotEventually(t, w)
		testbed.Took(t, "took over", start, 0, ttl+300*time.Millisecond)
		behind := testbed.Queue(t, b.Locker(t, kvlock.LockerConfig{}), "l", 4, kvlock.AcquireOptions{})
		start = time.Now()
		testbed.Release(t, lease) // to the first of the dead, whose places are given up after a second, and then to the other
		testbed.Release(t, testbed.GotEventually(t, behind))
		testbed.Took(t, "handed on", start, 0, 2500*time.Millisecond)
	})
}

// A caller that asks now and then for a lock whose holder died gets it when the TTL has passed, also one that has not
// seen the holder alive.
func TestTryAcquireOfADeadHolder(t *testing.T) {
	for name, tt := range map[string]struct {
		every, within time.Duration
		another       bool // each time by a process that has seen nothing
	}{
		"often, by one":      {100 * time.Millisecond, 20*time.Second + 200*time.Millisecond, false},
		"seldom, by one":     {7 * time.Second, 28 * time.Second, false},
		"each by another":    {3 * time.Second, 20*time.Second + 6*time.Second + 3*time.Second, true},
		"once in a while":    {time.Minute, time.Minute, true},
		"seldom, by another": {15 * time.Second, 45 * time.Second, true},
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			dead, cutOff := testbed.CuttableLocker(t, b, kvlock.LockerConfig{TTL: 20 * time.Second})
			lease := testbed.Acquire(t, dead, "l")
			cutOff()
			start := time.Now()
			other := b.Locker(t, kvlock.LockerConfig{})
			for {
				natstest.Pass(tt.every)
				if tt.another {
					other.Close()
					other = b.Locker(t, kvlock.LockerConfig{})
				}
				got, err := other.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{})
				if err == nil {
					check.That(t, lease.Context().Err() != nil, "the holder's context has not ended")
					testbed.Release(t, got)
					break
				}
				check.ErrorIs(t, err, kvlock.ErrHeld)
				took := time.Since(start)
				check.Require(t, took <= tt.within, "still held after %s", took)
			}
		})
	}
}

// A lease is renewed for as long as its holder lives, also while others queue. Neither a renewal nor a change of the queue removes the
// TTL of a lock's record.
func TestLocksExpire(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		l, cutOff := testbed.CuttableLocker(t, b, kvlock.LockerConfig{TTL: 30 * time.Second})
		other := b.Locker(t, kvlock.LockerConfig{})
		lease := testbed.Acquire(t, l, "l")
		for range 20 {
			natstest.Pass(7 * time.Second)
			_, err := other.Acquire(t.Context(), "l", kvlock.AcquireOptions{Wait: 40 * time.Second})
			check.Require(t, errors.Is(err, kvlock.ErrHeld), "%v", err)
			ttl := b.Present(t, "l").Header.Get("Nats-TTL")
			check.Require(t, ttl == "60s", "the record's TTL is %q", ttl)
		}
		check.That(t, lease.Context().Err() == nil, "ended: %v", context.Cause(lease.Context()))
		testbed.Release(t, testbed.Acquire(t, other, "free"))
		cutOff()
		natstest.Pass(5 * time.Minute)
		for _, key := range []string{"l", "free"} {
			check.Equal(t, b.Last(t, key), nil, "left of "+key)
		}
	})
}

// Tokens grow when the record is released, expires, is deleted, or goes with its bucket.
func TestLockTokensGrow(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		l := b.Locker(t, kvlock.LockerConfig{TTL: time.Second})
		var last kvlock.Token
		took := func(l *kvlock.Locker, what string) *kvlock.Lease {
			t.Helper()
			lease, err := l.Acquire(t.Context(), "l", kvlock.AcquireOptions{})
			check.Require(t, err == nil, "%s: %v", what, err)
			check.That(t, lease.Token().Compare(last) > 0, "%s: token %s after %s", what, lease.Token(), last)
			last = lease.Token()
			return lease
		}
		for range 20 {
			testbed.Release(t, took(l, "released"))
		}
		dead, cutOff := testbed.CuttableLocker(t, b, kvlock.LockerConfig{TTL: time.Second})
		took(dead, "another process")
		cutOff()
		natstest.Pass(10 * time.Minute)
		lease := took(l, "expired")
		kv := check.Must(b.JS.KeyValue(t.Context(), testbed.Bucket))(t)
		check.OK(t, kv.Delete(t.Context(), "l"))
		natstest.Pass(time.Second)
		check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrLost)
		lease = took(l, "purged")
		b.RecreateBucket(t, time.Second)
		natstest.Pass(5 * time.Second)
		check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrLost)
		took(b.Locker(t, kvlock.LockerConfig{}), "bucket recreated, by a new process")
	})
}
