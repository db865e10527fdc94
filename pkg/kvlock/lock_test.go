package kvlock_test

import (
	"context"
	"errors"
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

func TestTryAcquire(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	one, two := b.Locker(t, kvlock.LockerConfig{Instance: "one"}), b.Locker(t, kvlock.LockerConfig{Instance: "two"})
	lease := check.Must(one.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{Metadata: map[string]string{"job": "7"}}))(t)
	for name, l := range map[string]*kvlock.Locker{"in the same process": one, "in another": two} {
		_, err := l.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{})
		held, ok := errors.AsType[*kvlock.HeldError](err)
		if !ok || !errors.Is(err, kvlock.ErrHeld) || held.Lock.Holder != "one" || held.Lock.Metadata["job"] != "7" || held.Lock.Token != lease.Token() {
			t.Errorf("%s: got %v", name, err)
		}
	}
	testbed.Release(t, lease)
	again := check.Must(two.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{}))(t)
	check.That(t, again.Token().Compare(lease.Token()) > 0, "token %s after %s", again.Token(), lease.Token())
	check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrReleased)
	check.ErrorIs(t, again.Context().Err(), nil)
	testbed.Release(t, lease) // the second time does nothing
	check.That(t, testbed.Inspect(t, one, "l").Held, "a second Release took the lock away from its next holder")
}

// Waiters get the lock in the order in which they came, across processes.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	lockers := []*kvlock.Locker{b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{})}
	lease := testbed.Acquire(t, lockers[0], "l")
	var order []*testbed.Waiting
	for i := range 12 {
		order = append(order, testbed.Queue(t, lockers[[]int{0, 1, 1, 2, 0, 0}[i%6]], "l", i+1, kvlock.AcquireOptions{}))
	}
	for i, w := range order {
		token := lease.Token()
		testbed.Release(t, lease)
		lease = w.Got(t)
		check.That(t, lease.Token().Compare(token) > 0, "token %s after %s", lease.Token(), token)
		for j := i + 1; j < len(order); j++ {
			select {
			case <-order[j].Done:
				t.Fatalf("waiter %d was served with %d", j, i)
			default:
			}
		}
	}
	testbed.Release(t, lease)
	l := testbed.Inspect(t, lockers[0], "l")
	check.That(t, !l.Held && len(l.Queue) == 0, "left behind: %+v", l)
}

// A lock costs one write to take it and one to release it; one to queue, one to hand it over and one to confirm.
func TestWritesOfALock(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		one, two := b.Locker(t, kvlock.LockerConfig{}, p.Through()), b.Locker(t, kvlock.LockerConfig{})
		last := uint64(0)
		wrote := func(step string, want uint64) {
			t.Helper()
			now := b.Writes(t)
			check.Equal(t, now-last, want, step)
			last = now
		}
		for i := range 3 {
			lease := testbed.Acquire(t, one, "l")
			wrote("acquire", 1)
			testbed.Release(t, lease)
			wrote("release", 1)
			if i == 1 {
				natstest.Pass(30 * time.Second) // its record has expired, its marker has not
			}
		}
		lease := testbed.Acquire(t, one, "l")
		wrote("acquire", 1)
		w := testbed.Queue(t, two, "l", 1, kvlock.AcquireOptions{})
		wrote("queue", 1)
		testbed.Release(t, lease)
		lease = testbed.GotEventually(t, w)
		wrote("hand over", 1)
		natstest.Pass(time.Second)
		wrote("confirm", 1)

		var here []*testbed.Waiting
		p.Slow(10 * time.Millisecond) // so all come while the first of them is written
		for range 100 {
			here = append(here, testbed.Acquiring(t, one, "l", kvlock.AcquireOptions{}))
		}
		natstest.Pass(time.Second)
		p.Slow(0)
		check.Equal(t, testbed.Places(testbed.Inspect(t, two, "l")), 100, "places in the queue")
		wrote("queue, the first and the other 99 that came together", 2)
		testbed.Release(t, lease)
		served := map[*kvlock.Lease]bool{}
		for len(served) < 100 {
			for _, w := range here {
				select {
				case <-w.Done:
					check.OK(t, w.Err)
					if !served[w.Lease] {
						served[w.Lease] = true
						testbed.Release(t, w.Lease)
					}
				default:
				}
			}
			natstest.Pass(time.Millisecond)
		}
		wrote("hand over to a process, within it 99 times, and release", 1+1+99+1)
	})
}

// A holder that releases the lock and wants it again at once comes after its waiters.
func TestNoBarging(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) { // a waiter that is notified and does not answer in time may be passed over
		greedy, patient := b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{})
		lease := testbed.Acquire(t, greedy, "l")
		for range 50 {
			w := testbed.Queue(t, patient, "l", 1, kvlock.AcquireOptions{})
			testbed.Release(t, lease)
			check.ErrorIs(t, check.Err(greedy.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{})), kvlock.ErrHeld)
			again := testbed.Acquiring(t, greedy, "l", kvlock.AcquireOptions{})
			got := w.Got(t)
			select {
			case <-again.Done:
				t.Fatalf("the former holder got %v, %v before the waiter", again.Lease, again.Err)
			default:
			}
			testbed.Release(t, got)
			lease = again.Got(t)
		}
		testbed.Release(t, lease)
	})
}

// The push that hands a lock to a waiter may come late, by any time: the waiter never holds the lock when it has gone
// on to the next, also when all that the waiter sends from then on is lost.
func TestHandedLate(t *testing.T) {
	step := 50 * time.Millisecond
	if testing.Short() {
		step = 500 * time.Millisecond
	}
	for late := time.Duration(0); late < 1500*time.Millisecond; late += step {
		for _, waits := range []time.Duration{0, 100 * time.Millisecond, 240 * time.Millisecond, time.Second} {
			testbed.RunInBubble(t, fmt.Sprintf("%s after %s", late, waits), func(t *testing.T, b *testbed.Bed) { testHandedLate(t, b, waits, late) })
		}
	}
}

func testHandedLate(t *testing.T, b *testbed.Bed, waits, late time.Duration) {
	t.Helper()
	p := natstest.NewProxy(t, b.Srv)
	lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
	handed := testbed.Queue(t, b.Locker(t, kvlock.LockerConfig{}, p.Through()), "l", 1, kvlock.AcquireOptions{})
	next := testbed.Queue(t, b.Locker(t, kvlock.LockerConfig{}), "l", 2, kvlock.AcquireOptions{})
	natstest.Pass(waits)
	p.Slow(late)
	p.Filter(natstest.Losing(func(f natstest.Frame) bool { return f.FromClient }))
	healed := make(chan struct{})
	var only alone
	var all sync.WaitGroup
	for _, w := range []*testbed.Waiting{handed, next} {
		all.Go(func() {
			lease := testbed.GotEventually(t, w)
			only.took(t, lease)
			if w == handed { // this waiter does not release it
				select {
				case <-lease.Context().Done():
					return
				case <-healed:
				}
			}
			testbed.Release(t, lease)
		})
	}
	testbed.Release(t, lease)
	<-next.Done
	natstest.Pass(5 * time.Second)
	p.Slow(0)
	p.Filter(nil)
	close(healed)
	all.Wait()
}

// A waiter holds a lock that is handed to it soon without its own write. The lock is confirmed after that, with its metadata as they
// were. A waiter that has waited for long confirms the lock first.
func TestHandedAtOnce(t *testing.T) {
	for waits, first := range map[time.Duration]uint64{0: 1, time.Second: 2} {
		testbed.RunInBubble(t, "after "+waits.String(), func(t *testing.T, b *testbed.Bed) {
			one, two := b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{Instance: "two"})
			lease := testbed.Acquire(t, one, "l")
			opts := kvlock.AcquireOptions{Metadata: map[string]string{"job": "7"}, TTL: 10 * time.Second}
			w := testbed.Queue(t, two, "l", 1, opts)
			opts.Metadata["job"] = "8" // the caller may go on using its map
			natstest.Pass(waits)
			before := b.Writes(t)
			testbed.Release(t, lease)
			lease = testbed.GotEventually(t, w)
			lock := testbed.Inspect(t, one, "l")
			check.Equal(t, b.Writes(t)-before, first, "writes")
			check.That(t, lock.Granted == (first == 1) && lock.Token == lease.Token(), "the record is %+v, the token %s", lock, lease.Token())
			natstest.Pass(time.Second)
			lock = testbed.Inspect(t, one, "l")
			check.Equal(t, b.Writes(t)-before, 2, "writes")
			check.That(t, !lock.Granted && lock.Token == lease.Token() && lock.Holder == "two" && lock.Metadata["job"] == "7" && lock.TTL == opts.TTL,
				"the record is %+v, the token %s", lock, lease.Token())
			natstest.Pass(time.Minute)
			check.That(t, lease.Context().Err() == nil, "lost: %v", context.Cause(lease.Context()))
			testbed.Release(t, lease)
		})
	}
}

// The goroutine that takes a lock, or gives it up, sends the write itself, and waits for an answer no longer than its
// context lets it.
func TestNoAnswerToTheSender(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		l, p := b.ProxiedLocker(t, kvlock.LockerConfig{})
		lease := testbed.Acquire(t, l, "mine")
		p.Filter(natstest.Losing(func(f natstest.Frame) bool { return f.FromClient }))
		const patience = 100 * time.Millisecond
		for name, op := range map[string]func(context.Context) error{
			"acquire": func(ctx context.Context) error { _, err := l.Acquire(ctx, "l", kvlock.AcquireOptions{}); return err },
			"release": lease.Release,
		} {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			check.ErrorIs(t, op(ctx), context.DeadlineExceeded)
			cancel()
			check.Equal(t, time.Since(start), patience, name)
		}
		p.Filter(nil)
		natstest.Pass(time.Minute)
		for _, name := range []string{"l", "mine"} {
			lock := testbed.Inspect(t, l, name)
			check.That(t, !lock.Held, "left behind: %+v", lock)
		}
	})
}

// When the confirmation of a lock that was handed over is lost, or the answer to it, the lock stays with its new
// holder: there is time for another attempt.
func TestHandedAndConfirmationLost(t *testing.T) {
	for _, how := range []natstest.Fault{natstest.ReplyLost, natstest.WriteLost, natstest.RefusedApplied} {
		testbed.RunInBubble(t, string(how), func(t *testing.T, b *testbed.Bed) {
			p := natstest.NewProxy(t, b.Srv)
			lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
			l := b.Locker(t, kvlock.LockerConfig{}, p.Through())
			w := testbed.Queue(t, l, "l", 1, kvlock.AcquireOptions{})
			natstest.Pass(200 * time.Millisecond)
			p.Hit(testbed.Writes("l"), how, 1)
			testbed.Release(t, lease)
			lease = testbed.GotEventually(t, w)
			lock := testbed.Inspect(t, l, "l")
			check.Require(t, lock.Granted, "it was confirmed first: %+v", lock)
			natstest.Pass(time.Minute)
			check.Require(t, lease.Context().Err() == nil, "lost: %v", context.Cause(lease.Context()))
			testbed.Release(t, lease)
		})
	}
}

// However many requests for other locks wait for an answer, a holder confirms and renews its own.
func TestHoldersBeforeOthers(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		l, p := b.ProxiedLocker(t, kvlock.LockerConfig{OpTimeout: 5 * time.Second})
		lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
		w := testbed.Queue(t, l, "l", 1, kvlock.AcquireOptions{})
		p.Filter(natstest.Losing(func(f natstest.Frame) bool {
			return f.FromClient && strings.HasPrefix(f.Subject, "$KV."+testbed.Bucket+".other.")
		}))
		var others []*testbed.Waiting
		for i := range 300 {
			others = append(others, testbed.Acquiring(t, l, fmt.Sprint("other.", i), kvlock.AcquireOptions{}))
		}
		natstest.Pass(100 * time.Millisecond)
		testbed.Release(t, lease)
		lease = testbed.GotEventually(t, w)
		natstest.Pass(4 * time.Second)
		check.That(t, lease.Context().Err() == nil, "lost: %v", context.Cause(lease.Context()))
		p.Filter(nil)
		testbed.Release(t, lease)
		for _, w := range others {
			<-w.Done
			if w.Err == nil {
				testbed.Release(t, w.Lease)
			}
		}
	})
}
