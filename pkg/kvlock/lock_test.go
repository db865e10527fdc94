package kvlock_test

import (
	"context"
	"errors"
	"slices"
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
	b := setup(t)
	one, two := b.Locker(t, kvlock.LockerConfig{Instance: "one"}), b.Locker(t, kvlock.LockerConfig{Instance: "two"})
	lease := check.Must(one.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{Metadata: map[string]string{"job": "7"}}))(t)
	for name, l := range map[string]*kvlock.Locker{"in the same process": one, "in another": two} {
		_, err := l.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{})
		held, ok := errors.AsType[*kvlock.HeldError](err)
		if !ok || !errors.Is(err, kvlock.ErrHeld) || held.Lock.Holder != "one" || held.Lock.Metadata["job"] != "7" || held.Lock.Token != lease.Token() {
			t.Errorf("%s: got %v", name, err)
		}
	}
	release(t, lease)
	again := check.Must(two.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{}))(t)
	check.That(t, again.Token().Compare(lease.Token()) > 0, "token %s after %s", again.Token(), lease.Token())
	wantErr(t, context.Cause(lease.Context()), kvlock.ErrReleased)
	check.Is(t, again.Context().Err(), nil)
	release(t, lease) // once more does nothing
	check.That(t, inspect(t, one, "l").Held, "a second Release took the lock away from its next holder")
}

// Waiters get the lock in the order in which they came, across processes.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lockers := []*kvlock.Locker{b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{})}
	lease := acquire(t, lockers[0], "l")
	var order []*testbed.Waiting
	for i := range 12 {
		order = append(order, queue(t, lockers[[]int{0, 1, 1, 2, 0, 0}[i%6]], "l", i+1, kvlock.AcquireOptions{}))
	}
	for i, w := range order {
		token := lease.Token()
		release(t, lease)
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
	release(t, lease)
	l := inspect(t, lockers[0], "l")
	check.That(t, !l.Held && len(l.Queue) == 0, "left behind: %+v", l)
}

// A lock costs one write to take it and one to release it; one to queue, one to hand it over and one to confirm.
func TestWritesOfALock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		one, two := b.Locker(t, kvlock.LockerConfig{}, p.Through()), b.Locker(t, kvlock.LockerConfig{})
		last := uint64(0)
		wrote := func(step string, want uint64) {
			t.Helper()
			now := b.Writes(t)
			check.Same(t, step, now-last, want)
			last = now
		}
		for i := range 3 {
			lease := acquire(t, one, "l")
			wrote("acquire", 1)
			release(t, lease)
			wrote("release", 1)
			if i == 1 {
				pass(30 * time.Second) // its record has expired, its marker has not
			}
		}
		lease := acquire(t, one, "l")
		wrote("acquire", 1)
		w := queue(t, two, "l", 1, kvlock.AcquireOptions{})
		wrote("queue", 1)
		release(t, lease)
		lease = patiently(t, w)
		wrote("hand over", 1)
		pass(time.Second)
		wrote("confirm", 1)

		var here []*testbed.Waiting
		p.Slow(10 * time.Millisecond) // so all come while the first of them is written
		for range 100 {
			here = append(here, acquiring(t, one, "l", kvlock.AcquireOptions{}))
		}
		pass(time.Second)
		p.Slow(0)
		check.Same(t, "places in the queue", places(inspect(t, two, "l")), 100)
		wrote("queue, the first and the other 99 that came together", 2)
		release(t, lease)
		served := map[*kvlock.Lease]bool{}
		for len(served) < 100 {
			for _, w := range here {
				select {
				case <-w.Done:
					check.OK(t, w.Err)
					if !served[w.Lease] {
						served[w.Lease] = true
						release(t, w.Lease)
					}
				default:
				}
			}
			pass(time.Millisecond)
		}
		wrote("hand over to a process, within it 99 times, and release", 1+1+99+1)
	})
}

// A holder that releases the lock and wants it again at once comes after its waiters.
func TestNoBarging(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) { // a waiter that is told and does not answer in time may be passed over
		greedy, patient := b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{})
		lease := acquire(t, greedy, "l")
		for range 50 {
			w := queue(t, patient, "l", 1, kvlock.AcquireOptions{})
			release(t, lease)
			wantErr(t, check.Err(greedy.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{})), kvlock.ErrHeld)
			again := acquiring(t, greedy, "l", kvlock.AcquireOptions{})
			got := w.Got(t)
			select {
			case <-again.Done:
				t.Fatalf("the former holder got %v, %v before the waiter", again.Lease, again.Err)
			default:
			}
			release(t, got)
			lease = again.Got(t)
		}
		release(t, lease)
	})
}

// However greedy the others are, each gets as many turns as they do.
func TestNobodyStarves(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		const clients, turns = 16, 24
		counts := make([]int, clients)
		var mu sync.Mutex
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		for i := range clients {
			l := b.Locker(t, kvlock.LockerConfig{})
			all.Go(func() {
				for ctx.Err() == nil {
					err := l.Do(ctx, "l", func(context.Context, kvlock.Token) error {
						mu.Lock()
						defer mu.Unlock()
						counts[i]++
						if counts[i] == turns {
							cancel()
						}
						pass(time.Millisecond)
						return nil
					})
					check.That(t, err == nil || ctx.Err() != nil, "%v", err)
				}
			})
		}
		all.Wait()
		least, most := slices.Min(counts), slices.Max(counts)
		check.That(t, !(float64(least) < 0.95*float64(most)), "between %d and %d turns", least, most)
	})
}
