package kvlock_test

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var timestamp = regexp.MustCompile(`("created":")?20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// shiftClock makes the client's clock jump, as the client sees it: all times from the server are off by d from now on,
// whole hours, so that no text gets longer. (Only the machine's administrator can make a real clock jump, and it would
// jump for all processes.)
func shiftClock(p *natstest.Proxy, d time.Duration) {
	p.Change(func(f natstest.Frame) []byte {
		if f.FromClient {
			return nil
		}
		return timestamp.ReplaceAllFunc(bytes.Clone(f.Raw), func(text []byte) []byte {
			at, err := time.Parse(time.RFC3339Nano, string(text))
			if err != nil { // it is when the bucket was made, which no clock changes
				return text
			}
			shifted := []byte(at.Add(d).Format(time.RFC3339Nano))
			if len(shifted) != len(text) {
				return text
			}
			return shifted
		})
	})
}

var jumps = []time.Duration{time.Hour, -time.Hour, 72 * time.Hour, -72 * time.Hour}

// A holder whose clock jumps to and fro keeps its lock, and no other client gets it.
func TestHolderWhoseClockJumps(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{TTL: 5 * time.Second}, p.Through()), "l")
		near := b.Flight(t, flight.Config{ClaimTTL: 5 * time.Second}, p.Through())
		claim := testbed.Begin(t, near, "k", flight.BeginOptions{})
		held, stop := claim.AutoRenew(t.Context(), 0)
		defer stop()
		locker, f := b.Locker(t, kvlock.LockerConfig{}), b.Flight(t, flight.Config{})
		for i := range 60 {
			jump := jumps[i%len(jumps)]
			shiftClock(p, jump)
			natstest.Pass(3 * time.Second)
			off := testbed.Get(t, near, "k").Created.Sub(testbed.Get(t, f, "k").Created)
			check.Require(t, off == jump, "the clock is off by %s, want %s", off, jump)
			_, err := locker.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{})
			check.Require(t, errors.Is(err, kvlock.ErrHeld), "jump %d: got %v while the lock was held", i, err)
			_, err = f.Begin(t.Context(), "k", flight.BeginOptions{})
			check.Require(t, errors.Is(err, flight.ErrTaken), "jump %d: got %v while the key was claimed", i, err)
		}
		check.That(t, lease.Context().Err() == nil && held.Err() == nil, "ended: %v, %v", context.Cause(lease.Context()), context.Cause(held))
		testbed.Release(t, lease)
		testbed.Complete(t, claim, "v")
	})
}

// A waiter whose clock jumps takes over from a dead holder, but not before its TTL is over.
func TestWaiterWhoseClockJumps(t *testing.T) {
	const ttl = 10 * time.Second
	for _, jump := range jumps {
		testbed.RunInBubble(t, jump.String(), func(t *testing.T, b *testbed.Bed) {
			far := natstest.NewProxy(t, b.Srv)
			lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{TTL: ttl}, far.Through()), "l")
			claim := testbed.Begin(t, b.Flight(t, flight.Config{ClaimTTL: ttl}, far.Through()), "k", flight.BeginOptions{})
			held, stop := claim.AutoRenew(t.Context(), 0)
			defer stop()
			p := natstest.NewProxy(t, b.Srv)
			locker, f := b.Locker(t, kvlock.LockerConfig{}, p.Through()), b.Flight(t, flight.Config{}, p.Through())
			next := testbed.Queue(t, locker, "l", 1, kvlock.AcquireOptions{})
			var computed, ended time.Time
			var both sync.WaitGroup
			both.Go(func() {
				_, err := f.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
					computed = time.Now()
					return nil, nil
				}, flight.DoOptions{})
				check.ErrorIs(t, err, nil)
			})
			both.Go(func() {
				<-held.Done()
				ended = time.Now()
			})
			natstest.Pass(ttl)
			shiftClock(p, jump)
			natstest.Pass(ttl / 2)
			far.Partition()
			cut := time.Now()
			wantEndsFirst(t, lease, next)
			both.Wait()
			check.ErrorIs(t, context.Cause(held), kvlock.ErrLost)
			if took := computed.Sub(cut); !ended.Before(computed) || took > ttl+testbed.Lateness+2*testbed.Step {
				t.Errorf("the claim ended after %s, the key was computed after %s", ended.Sub(cut), took)
			}
		})
	}
}

// wantEndsFirst waits until the lease has ended and the next holder has the lock, and compares when.
func wantEndsFirst(t *testing.T, lease *kvlock.Lease, next *testbed.Waiting) {
	t.Helper()
	start := time.Now()
	var second time.Time
	var taken sync.WaitGroup
	taken.Go(func() {
		<-next.Done
		second = time.Now()
	})
	<-lease.Context().Done()
	ended := time.Now()
	taken.Wait()
	check.OK(t, next.Err)
	check.ErrorIs(t, context.Cause(lease.Context()), kvlock.ErrLost)
	check.That(t, ended.Before(second), "held until %s after the cut, the second holder came after %s", ended.Sub(start), second.Sub(start))
	token := next.Lease.Token()
	check.That(t, token.Compare(lease.Token()) > 0, "token %s after %s", token, lease.Token())
	testbed.Release(t, next.Lease)
}

// The clock of the server jumps between a renewal and the arrival of another caller. The caller does not take that for
// the end of the holder's TTL.
func TestServerWhoseClockJumps(t *testing.T) {
	for _, jump := range jumps {
		testbed.RunInBubble(t, jump.String(), func(t *testing.T, b *testbed.Bed) {
			lease := testbed.Acquire(t, b.Locker(t, kvlock.LockerConfig{TTL: 10 * time.Second}), "l")
			other, p := b.ProxiedLocker(t, kvlock.LockerConfig{})
			for range 5 {
				_, err := other.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{}) // it knows the record as it was before
				check.ErrorIs(t, err, kvlock.ErrHeld)
				shiftClock(p, jump)
				check.ErrorIs(t, check.Err(other.Acquire(t.Context(), "l", kvlock.AcquireOptions{Wait: 5 * time.Second})), kvlock.ErrHeld)
				check.ErrorIs(t, check.Err(other.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{})), kvlock.ErrHeld)
				shiftClock(p, 0)
				natstest.Pass(time.Second)
			}
			check.That(t, lease.Context().Err() == nil, "lost: %v", context.Cause(lease.Context()))
			testbed.Release(t, lease)
		})
	}
}

// Seven failures were reproduced in widely used libraries for locks and coalescing. Each has a test that is named for the
// property: here TestHolderPanics; beside the other tests of locks TestLocksExpire, TestOneSidedPartition, TestFirstComeFirstServed,
// TestNoBarging and TestFreeLockAfterAPause; in the folder flight TestDifferentWorks, for integers above 53 bits; and with a server
// that is really frozen TestSingleServer, in the folder chaos.

// A lock whose holder panics goes to the next in the queue at once.
func TestHolderPanics(t *testing.T) {
	const soon = 5 * time.Millisecond // of fake time, which does not pass while anybody computes: no timer, TTL or poll is as short
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		holder, other := b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{})
		holds, die := make(chan struct{}), make(chan struct{})
		var died time.Time
		var panics sync.WaitGroup
		panics.Go(func() {
			defer func() { check.Equal[any](t, recover(), "no", "the caller's panic") }()
			err := holder.Do(t.Context(), "l", func(context.Context, kvlock.Token) error {
				close(holds)
				<-die
				died = time.Now()
				panic("no")
			})
			t.Errorf("returned %v instead of panicking", err)
		})
		<-holds
		next := testbed.Queue(t, other, "l", 1, kvlock.AcquireOptions{})
		natstest.Pass(time.Second)
		close(die)
		lease := testbed.GotEventually(t, next)
		testbed.Took(t, "the next had the lock", died, 0, soon)
		testbed.Release(t, lease)
		panics.Wait()
	})
}

// A call that its caller interrupts while no server answers returns the caller's cause, and nothing of the requests that it
// was about to repeat.
func TestInterruptedCallsReportTheirCause(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		nc, js := natstest.Connect(t, b.Srv, p.Through())
		l, f := testbed.LockerOn(t, js, kvlock.LockerConfig{}), testbed.FlightOn(t, js, flight.Config{})
		p.Cut()
		for nc.IsConnected() {
			natstest.Pass(time.Millisecond)
		}
		stop := errors.New("interrupted")
		for name, call := range map[string]func(ctx context.Context) error{
			"inspect": func(ctx context.Context) error { return check.Err(l.Inspect(ctx, "l")) },
			"acquire": func(ctx context.Context) error { return check.Err(l.Acquire(ctx, "l", kvlock.AcquireOptions{})) },
			"get":     func(ctx context.Context) error { return check.Err(f.Get(ctx, "k")) },
			"begin":   func(ctx context.Context) error { return check.Err(f.Begin(ctx, "k", flight.BeginOptions{})) },
			"list": func(ctx context.Context) (err error) {
				for _, one := range l.List(ctx, "") {
					err = one
				}
				return err
			},
			"open": func(ctx context.Context) error {
				return check.Err(kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: testbed.Bucket}))
			},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(500*time.Millisecond, func() { cancel(stop) })
			err := call(ctx)
			check.ErrorIs(t, err, stop)
			check.That(t, !strings.Contains(err.Error(), "nats"), "%s: got %q", name, err)
		}
	})
}
