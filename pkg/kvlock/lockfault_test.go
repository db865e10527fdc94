package kvlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// alone checks that no two leases of a lock have contexts that are alive at once, and that tokens grow.
type alone struct {
	mu    sync.Mutex
	lease *kvlock.Lease
	n     int
}

func (a *alone) took(t testing.TB, l *kvlock.Lease) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.Context().Err() == nil && a.lease != nil {
		check.That(t, a.lease.Context().Err() != nil, "two hold the lock: %s and %s", a.lease.Token(), l.Token())
		check.That(t, l.Token().Compare(a.lease.Token()) > 0, "token %s after %s", l.Token(), a.lease.Token())
	}
	a.lease = l
	a.n++
}

// A lock works on after any fault of a write about it or of its answer: each kind of write is tried through each fault,
// once and twice in a row.
func TestLockWithLostAcknowledgements(t *testing.T) {
	ops := map[string]func(t *testing.T, b *testbed.Bed, p *natstest.Proxy, l *kvlock.Locker, hit func()){
		"acquire": func(t *testing.T, _ *testbed.Bed, _ *natstest.Proxy, l *kvlock.Locker, hit func()) {
			t.Helper()
			hit()
			testbed.Release(t, testbed.Acquire(t, l, "l"))
		},
		"try": func(t *testing.T, _ *testbed.Bed, _ *natstest.Proxy, l *kvlock.Locker, hit func()) {
			t.Helper()
			hit()
			lease := check.Must(l.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{}))(t)
			testbed.Release(t, lease)
		},
		"renew": func(t *testing.T, b *testbed.Bed, _ *natstest.Proxy, l *kvlock.Locker, hit func()) {
			t.Helper()
			lease := testbed.Acquire(t, l, "l")
			hit()
			natstest.Pass(time.Minute)
			check.That(t, lease.Context().Err() == nil, "lost: %v", context.Cause(lease.Context()))
			testbed.Release(t, lease)
			testbed.Release(t, testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l"))
		},
		"queue, and be handed it": func(t *testing.T, b *testbed.Bed, _ *natstest.Proxy, l *kvlock.Locker, hit func()) {
			t.Helper()
			lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
			hit()
			w := testbed.Queue(t, l, "l", 1, kvlock.AcquireOptions{})
			natstest.Pass(10 * time.Second)
			hit()
			testbed.Release(t, lease)
			testbed.Release(t, testbed.GotEventually(t, w))
		},
		"release": func(t *testing.T, b *testbed.Bed, _ *natstest.Proxy, l *kvlock.Locker, hit func()) {
			t.Helper()
			lease := testbed.Acquire(t, l, "l")
			hit()
			testbed.Release(t, lease)
			testbed.Release(t, testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l"))
		},
		"hand over": func(t *testing.T, b *testbed.Bed, _ *natstest.Proxy, l *kvlock.Locker, hit func()) {
			t.Helper()
			lease := testbed.Acquire(t, l, "l")
			other := b.Locker(t, kvlock.LockerConfig{})
			w := testbed.Queue(t, other, "l", 1, kvlock.AcquireOptions{})
			hit()
			testbed.Release(t, lease)
			testbed.Release(t, testbed.GotEventually(t, w))
		},
		"give up": func(t *testing.T, b *testbed.Bed, _ *natstest.Proxy, l *kvlock.Locker, hit func()) {
			t.Helper()
			lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
			time.AfterFunc(time.Second, hit)
			check.ErrorIs(t, check.Err(l.Acquire(t.Context(), "l", kvlock.AcquireOptions{Wait: 2 * time.Second})), kvlock.ErrHeld)
			natstest.Pass(10 * time.Second)
			check.Equal(t, testbed.Places(testbed.Inspect(t, l, "l")), 0, "places left in the queue")
			testbed.Release(t, lease)
		},
		"steal": func(t *testing.T, b *testbed.Bed, _ *natstest.Proxy, l *kvlock.Locker, hit func()) {
			t.Helper()
			lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{}), "l")
			hit()
			stolen := check.Must(l.Steal(t.Context(), "l", kvlock.AcquireOptions{}))(t)
			<-lease.Context().Done()
			check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrLost)
			check.ErrorIs(t, lease.Release(t.Context()), kvlock.ErrLost)
			check.ErrorIs(t, stolen.Context().Err(), nil)
			testbed.Release(t, stolen)
		},
	}
	for name, op := range ops {
		for _, how := range []natstest.Fault{natstest.ReplyLost, natstest.WriteLost, natstest.RefusedApplied} {
			for _, times := range []int{1, 2} {
				testbed.RunInBubble(t, fmt.Sprintf("%s/%s/%d", name, how, times), func(t *testing.T, b *testbed.Bed) {
					l, p := b.ProxiedLocker(t, kvlock.LockerConfig{OpTimeout: 10 * time.Second})
					op(t, b, p, l, func() { p.Hit(testbed.Writes("l"), how, times) })
					p.Filter(nil)
					natstest.Pass(time.Minute)
					lock := testbed.Inspect(t, l, "l")
					check.That(t, !lock.Held && len(lock.Queue) == 0, "left behind: %+v", lock)
				})
			}
		}
	}
}

// No push ever arrives: every waiter gets the lock all the same, a few seconds later at most.
func TestLockWithoutPushes(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		var all sync.WaitGroup
		var only alone
		start := time.Now()
		for range 5 {
			p := natstest.NewProxy(t, b.Srv)
			p.Filter(testbed.LosePushes)
			l := b.Locker(t, kvlock.LockerConfig{}, p.Through())
			all.Go(func() {
				lease := testbed.Acquire(t, l, "l")
				only.took(t, lease)
				natstest.Pass(time.Second)
				testbed.Release(t, lease)
			})
		}
		all.Wait()
		testbed.Took(t, "five took turns", start, 0, 5*5*time.Second)
	})
}

// The server pauses while a free lock is asked for: nothing hangs, whenever that is.
func TestFreeLockAfterAPause(t *testing.T) {
	n := 100
	if crash.Long() {
		n = 1000
	}
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		l, p := b.ProxiedLocker(t, kvlock.LockerConfig{})
		for i := range n {
			until := time.Now().Add(60 * time.Millisecond)
			side := i % 3 // which messages are lost: requests, answers, or both
			p.Filter(natstest.Losing(func(f natstest.Frame) bool {
				return time.Now().Before(until) && (side == 2 || f.FromClient == (side == 0))
			}))
			start := time.Now()
			lease := testbed.Acquire(t, l, fmt.Sprintf("l%d", i%7))
			testbed.Took(t, "acquired", start, 0, 2*time.Second)
			testbed.Release(t, lease)
			natstest.Pass(time.Duration(rand.IntN(5000)) * time.Millisecond)
		}
	})
}

// The holder is cut off, in either direction or both, and does not know. Its context always ends before another client
// has the lock, for any actions of the others and any lost acknowledgements before the cut.
func TestOneSidedPartition(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 3 * time.Second, 30 * time.Second} {
		for name, cut := range map[string]func(natstest.Frame) bool{
			"its requests are lost":        func(f natstest.Frame) bool { return f.FromClient },
			"all to it is lost":            func(f natstest.Frame) bool { return !f.FromClient },
			"answers are lost, not pushes": func(f natstest.Frame) bool { return !f.FromClient && !testbed.IsPush(f) },
			"everything is lost":           func(natstest.Frame) bool { return true },
		} {
			testbed.RunInBubble(t, fmt.Sprintf("%s/%s", ttl, name), func(t *testing.T, b *testbed.Bed) {
				for i := range 12 {
					testPartition(t, b, ttl, cut, i)
				}
			})
		}
	}
}

// testPartition is run i: with each number of lost answers when the lock is taken, with and without lost answers to renewals, and with the
// cut at once and later.
func testPartition(t *testing.T, b *testbed.Bed, ttl time.Duration, cut func(natstest.Frame) bool, i int) {
	t.Helper()
	lost, renewalsLost, waits := i%3, i/3%2 == 1, i/6 == 1
	holder, p := b.ProxiedLocker(t, kvlock.LockerConfig{OpTimeout: 5 * time.Second, TTL: ttl})
	other := b.Locker(t, kvlock.LockerConfig{TTL: ttl})
	var only alone
	testbed.Release(t, testbed.Acquire(t, other, "l")) // it sees all that is written from now on
	if lost > 0 {
		p.Hit(testbed.Writes("l"), natstest.ReplyLost, lost) // the lease counts from the first request, and is acknowledged later
	}
	lease := testbed.Acquire(t, holder, "l")
	only.took(t, lease)
	if renewalsLost {
		p.Hit(testbed.Writes("l"), natstest.ReplyLost, 2) // before the cut, renewals are applied without an acknowledgement
	}
	w := testbed.Queue(t, other, "l", 1, kvlock.AcquireOptions{})
	switch {
	case waits && renewalsLost: // until the first renewal is acknowledged, two seconds later
		natstest.Pass(ttl/3 + 2100*time.Millisecond + rand.N(ttl/4))
	case waits:
		natstest.Pass(rand.N(2 * ttl))
	}
	start := time.Now()
	p.Filter(natstest.Losing(cut))
	next := testbed.GotEventually(t, w)
	only.took(t, next)
	testbed.Took(t, "took over", start, 0, 2*ttl+time.Second)
	p.Filter(nil)
	natstest.Pass(time.Second)
	check.ErrorIs(t, lease.Release(t.Context()), kvlock.ErrLost)
	check.That(t, next.Context().Err() == nil, "the new holder lost it: %v", context.Cause(next.Context()))
	testbed.Release(t, next)
	holder.Close()
	other.Close()
}

// While a server accepts connections and says nothing, nats.go holds the lock of the connection. A caller waits as long as it wants, and not
// as long as that lasts.
func TestAServerThatHangsHoldsNoCallerUp(t *testing.T) {
	t.Parallel()
	b := testbed.On(t, natstest.Server(t), kvlock.BucketConfig{Bucket: testbed.Bucket})
	p := natstest.NewProxy(t, b.Srv)
	_, js := natstest.Connect(t, b.Srv, p.Through(), nats.Timeout(time.Hour), nats.ReconnectWait(time.Millisecond))
	l := testbed.LockerOn(t, js, kvlock.LockerConfig{OpTimeout: 50 * time.Millisecond})
	lease := check.Must(l.Acquire(t.Context(), "first", kvlock.AcquireOptions{}))(t) // the connection has all its subscriptions
	<-p.Hang(t)
	n := 0
	check.Until(t, time.Minute, "a caller returns", func() bool {
		n++
		done := make(chan error, 1)
		name := fmt.Sprint("lock-", n)
		go func() { done <- check.Err(l.TryAcquire(t.Context(), name, kvlock.AcquireOptions{})) }()
		select {
		case err := <-done:
			check.ErrorIs(t, err, kvlock.ErrUnavailable)
			return true
		case <-time.After(time.Second): // it was on its way when the connection was lost
			return false
		}
	})
	check.ErrorIs(t, lease.Release(t.Context()), kvlock.ErrUnavailable)
	p.Heal()
}

// Random clients with random lives: cut off, healed, dead, closing, giving up, stealing nothing. Two clients never hold
// the lock at once, and no waiter is left behind.
func TestLockHistories(t *testing.T) {
	runs := 3
	switch {
	case crash.Long():
		runs = 100
	case testing.Short():
		runs = 1
	}
	of := crash.Random(t)
	for i := range runs {
		testbed.RunInBubble(t, fmt.Sprint(i), func(t *testing.T, b *testbed.Bed) { testHistory(t, b, of(uint64(i))) })
	}
}

func testHistory(t *testing.T, b *testbed.Bed, random *rand.Rand) {
	t.Helper()
	const clients = 6
	var only alone
	var all sync.WaitGroup
	end := time.Now().Add(10 * time.Minute)
	for range clients {
		r := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		l, p := b.ProxiedLocker(t, kvlock.LockerConfig{TTL: time.Duration(1+r.IntN(8)) * time.Second})
		faults := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		all.Go(func() { // faults of its connection
			for time.Now().Before(end) {
				natstest.Pass(time.Duration(faults.IntN(20_000)) * time.Millisecond)
				switch faults.IntN(5) {
				case 0:
					p.Partition()
				case 1:
					p.Cut()
				case 2:
					how := []natstest.Fault{natstest.ReplyLost, natstest.WriteLost, natstest.RefusedApplied}[faults.IntN(3)]
					p.Hit(testbed.Writes("l"), how, 1+faults.IntN(3))
				case 3:
					p.Slow(time.Duration(faults.IntN(300)) * time.Millisecond)
				}
				natstest.Pass(time.Duration(faults.IntN(8_000)) * time.Millisecond)
				p.Filter(nil)
				p.Slow(0)
				p.Heal()
			}
		})
		for range 1 + r.IntN(3) {
			hold, bound := time.Duration(r.IntN(2_000))*time.Millisecond, time.Duration(r.IntN(30_000))*time.Millisecond
			all.Go(func() {
				for time.Now().Before(end) {
					lease, err := l.Acquire(t.Context(), "l", kvlock.AcquireOptions{Wait: bound})
					if err != nil {
						check.That(t, errors.Is(err, kvlock.ErrHeld) || errors.Is(err, kvlock.ErrUnavailable), "%v", err)
						natstest.Pass(100 * time.Millisecond)
						continue
					}
					only.took(t, lease)
					select {
					case <-lease.Context().Done():
						check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrLost)
					case <-time.After(hold):
					}
					_ = lease.Release(t.Context()) // lost, perhaps
				}
			})
		}
	}
	all.Wait()
	natstest.Pass(time.Minute)
	l := b.Locker(t, kvlock.LockerConfig{})
	lock := testbed.Inspect(t, l, "l")
	check.That(t, !lock.Held && len(lock.Queue) == 0, "left behind: %+v", lock)
	check.That(t, only.n >= 100, "only %d acquisitions", only.n)
}
