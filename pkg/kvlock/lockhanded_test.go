package kvlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The push that hands a lock to a waiter may come late, by any time: the waiter never holds the lock when it has gone
// on to the next, also when all that the waiter sends from then on is lost.
func TestHandedLate(t *testing.T) {
	for late := time.Duration(0); late < 1500*time.Millisecond; late += 50 * time.Millisecond {
		for _, waits := range []time.Duration{0, 100 * time.Millisecond, 240 * time.Millisecond, time.Second} {
			runInBubble(t, fmt.Sprintf("%s after %s", late, waits), func(t *testing.T, b *bed) { testHandedLate(t, b, waits, late) })
		}
	}
}

func testHandedLate(t *testing.T, b *bed, waits, late time.Duration) {
	t.Helper()
	p := natstest.NewProxy(t, b.Srv)
	lease := acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
	handed := queue(t, b.Locker(t, kvlock.LockerConfig{}, p.Through()), "l", 1, kvlock.AcquireOptions{})
	next := queue(t, b.Locker(t, kvlock.LockerConfig{}), "l", 2, kvlock.AcquireOptions{})
	pass(waits)
	p.Slow(late)
	p.Filter(losing(func(f natstest.Frame) bool { return f.FromClient }))
	healed := make(chan struct{})
	var only alone
	var all sync.WaitGroup
	for _, w := range []*testbed.Waiting{handed, next} {
		all.Go(func() {
			lease := patiently(t, w)
			only.took(t, lease)
			if w == handed { // this waiter does not release it
				select {
				case <-lease.Context().Done():
					return
				case <-healed:
				}
			}
			release(t, lease)
		})
	}
	release(t, lease)
	<-next.Done
	pass(5 * time.Second)
	p.Slow(0)
	p.Filter(nil)
	close(healed)
	all.Wait()
}

// A short-time waiter holds a lock that is handed to it without a write of its own. The lock is confirmed soon after,
// with its metadata.
func TestHandedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		one, two := b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{Instance: "two"})
		lease := acquire(t, one, "l")
		opts := kvlock.AcquireOptions{Metadata: map[string]string{"job": "7"}, TTL: 10 * time.Second}
		w := queue(t, two, "l", 1, opts)
		before := b.Writes(t)
		release(t, lease)
		lease = patiently(t, w)
		lock := inspect(t, one, "l")
		n := b.Writes(t) - before
		check.That(t, n == 1 && lock.Granted && lock.Token == lease.Token(), "%d writes, and the record is %+v, the token %s", n, lock, lease.Token())
		pass(time.Second)
		lock = inspect(t, one, "l")
		if n := b.Writes(t) - before; n != 2 || lock.Granted || lock.Token != lease.Token() || lock.Holder != "two" ||
			lock.Metadata["job"] != "7" || lock.TTL != opts.TTL {
			t.Errorf("%d writes, and the record is %+v, the token %s", n, lock, lease.Token())
		}
		pass(time.Minute)
		check.That(t, lease.Context().Err() == nil, "lost: %v", context.Cause(lease.Context()))
		release(t, lease)
	})
}

// A waiter that has waited for long confirms the lock first.
func TestHandedAfterLong(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		one, two := b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{})
		lease := acquire(t, one, "l")
		w := queue(t, two, "l", 1, kvlock.AcquireOptions{})
		pass(time.Second)
		before := b.Writes(t)
		release(t, lease)
		lease = patiently(t, w)
		lock := inspect(t, one, "l")
		if n := b.Writes(t) - before; n != 2 || lock.Granted || lock.Token != lease.Token() {
			t.Errorf("%d writes, and the record is %+v, the token %s", n, lock, lease.Token())
		}
		release(t, lease)
	})
}

// The goroutine that takes a lock, or gives it up, sends the write itself, and waits for an answer no longer than its
// context lets it.
func TestNoAnswerToTheSender(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		l, p := b.ProxiedLocker(t, kvlock.LockerConfig{})
		lease := acquire(t, l, "mine")
		p.Filter(losing(func(f natstest.Frame) bool { return f.FromClient }))
		const patience = 100 * time.Millisecond
		for name, op := range map[string]func(context.Context) error{
			"acquire": func(ctx context.Context) error { _, err := l.Acquire(ctx, "l", kvlock.AcquireOptions{}); return err },
			"release": lease.Release,
		} {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			wantErr(t, op(ctx), context.DeadlineExceeded)
			cancel()
			check.Same(t, name, time.Since(start), patience)
		}
		p.Filter(nil)
		pass(time.Minute)
		for _, name := range []string{"l", "mine"} {
			lock := inspect(t, l, name)
			check.That(t, !lock.Held, "left behind: %+v", lock)
		}
	})
}

// When the confirmation of a lock that was handed over is lost, or the answer to it, the lock stays with its new
// holder: there is time for another attempt.
func TestHandedAndConfirmationLost(t *testing.T) {
	for _, how := range []natstest.Fault{natstest.ReplyLost, natstest.WriteLost, natstest.RefusedApplied} {
		runInBubble(t, string(how), func(t *testing.T, b *bed) {
			p := natstest.NewProxy(t, b.Srv)
			lease := acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
			l := b.Locker(t, kvlock.LockerConfig{}, p.Through())
			w := queue(t, l, "l", 1, kvlock.AcquireOptions{})
			pass(200 * time.Millisecond)
			p.Hit(writes("l"), how, 1)
			release(t, lease)
			lease = patiently(t, w)
			lock := inspect(t, l, "l")
			check.Require(t, lock.Granted, "it was confirmed first: %+v", lock)
			pass(time.Minute)
			check.Require(t, lease.Context().Err() == nil, "lost: %v", context.Cause(lease.Context()))
			release(t, lease)
		})
	}
}

// However many requests for other locks wait for an answer, a holder confirms and renews its own.
func TestHoldersBeforeOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		l, p := b.ProxiedLocker(t, kvlock.LockerConfig{OpTimeout: 5 * time.Second})
		lease := acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
		w := queue(t, l, "l", 1, kvlock.AcquireOptions{})
		p.Filter(losing(func(f natstest.Frame) bool {
			return f.FromClient && strings.HasPrefix(f.Subject, "$KV."+bucket+".other.")
		}))
		var others []*testbed.Waiting
		for i := range 300 {
			others = append(others, acquiring(t, l, fmt.Sprint("other.", i), kvlock.AcquireOptions{}))
		}
		pass(100 * time.Millisecond)
		release(t, lease)
		lease = patiently(t, w)
		pass(4 * time.Second)
		check.That(t, lease.Context().Err() == nil, "lost: %v", context.Cause(lease.Context()))
		p.Filter(nil)
		release(t, lease)
		for _, w := range others {
			<-w.Done
			if w.Err == nil {
				release(t, w.Lease)
			}
		}
	})
}
