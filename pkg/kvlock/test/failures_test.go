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
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/test/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Seven failures were reproduced in widely used libraries for locks and coalescing. Each has a test that says in its name
// what has to hold: here TestOwnerPanics, TestHolderPanics and TestIntegersAbove53Bits; beside the other tests of locks
// TestLocksExpire, TestOneSidedPartition, TestNobodyStarves, TestNoBarging and TestFreeLockAfterAPause; and with a server
// that is really stopped TestFreeLockAfterServerPause, in the folder chaos.

// soon is how long the next owner may take when nothing but computing lies between, in fake time, which does not pass
// while anybody computes: any timer, TTL or polling in between is longer.
const soon = 5 * time.Millisecond

// A function that panics, and whose caller goes on, leaves no claim: the next caller computes at once, without waiting
// for a TTL.
func TestOwnerPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		owner, other := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		computing, die := make(chan struct{}), make(chan struct{})
		var died time.Time
		var panics sync.WaitGroup
		panics.Go(func() {
			_, err := owner.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
				close(computing)
				<-die
				died = time.Now()
				panic("no")
			}, flight.DoOptions{})
			_, ok := errors.AsType[*flight.PanicError](err)
			check.That(t, ok, "the owner got %v", err)
		})
		<-computing
		waits := make(chan error, 1)
		go func() {
			_, err := other.Do(t.Context(), "k", nil, flight.DoOptions{}) // waits: it computes nothing
			waits <- err
		}()
		pass(time.Second)
		close(die)
		check.Is(t, <-waits, flight.ErrFailed)
		r, err := other.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return []byte("v"), nil }, flight.DoOptions{})
		took := time.Since(died)
		check.That(t, err == nil && r.Outcome == flight.Computed && took <= soon, "got %+v, %v after %s", r, err, took)
		panics.Wait()
	})
}

// A lock whose holder panics goes to the next in the queue at once.
func TestHolderPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		holder, other := b.Locker(t, kvlock.LockerConfig{}), b.Locker(t, kvlock.LockerConfig{})
		holds, die := make(chan struct{}), make(chan struct{})
		var died time.Time
		var panics sync.WaitGroup
		panics.Go(func() {
			defer func() { _ = recover() }()
			err := holder.Do(t.Context(), "l", func(context.Context, kvlock.Token) error {
				close(holds)
				<-die
				died = time.Now()
				panic("no")
			})
			t.Errorf("returned %v instead of panicking", err)
		})
		<-holds
		next := queue(t, other, "l", 1, kvlock.AcquireOptions{})
		pass(time.Second)
		close(die)
		lease := patiently(t, next)
		took := time.Since(died)
		check.That(t, took <= soon, "the next had the lock after %s", took)
		release(t, lease)
		panics.Wait()
	})
}

// Two inputs that are the same float64 are two computations, and neither caller gets the other's result.
func TestIntegersAbove53Bits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f := b.Flight(t, flight.Config{})
	for _, n := range []int64{1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<53 + 2, 1<<63 - 1, 1<<63 - 2} {
		key := check.Must(flight.Work{Process: "p", Inputs: map[string]any{"n": n}}.Key())(t)
		want := fmt.Sprint("result of ", n)
		r, err := f.Do(t.Context(), key, func(context.Context) ([]byte, error) { return []byte(want), nil }, flight.DoOptions{})
		check.That(t, err == nil && string(r.Value) == want && r.Outcome == flight.Computed, "%d: got %q, %s, %v", n, r.Value, r.Outcome, err)
	}
}

// A call that its caller interrupts while no server answers returns the caller's cause, and nothing of the requests that it
// was about to repeat.
func TestInterruptedCallsReportTheirCause(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.Srv)
		nc, js := connect(t, b.Srv, p.Through())
		l, f := lockerOn(t, js, kvlock.LockerConfig{}), flightOn(t, js, flight.Config{})
		p.Cut()
		for nc.IsConnected() {
			pass(time.Millisecond)
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
			wantErr(t, err, stop)
			check.That(t, !strings.Contains(err.Error(), "nats"), "%s: got %q", name, err)
		}
	})
}
