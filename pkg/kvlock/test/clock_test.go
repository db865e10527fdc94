package kvlock_test

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

var timestamp = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// shiftClock makes the client's clock jump, as far as it can tell: everything that the server says about time is off by
// d from now on, whole hours, so that no text gets longer. (Nothing but the machine's administrator can make a real clock
// jump, and it would jump for everybody.)
func shiftClock(p *natstest.Proxy, d time.Duration) {
	p.Change(func(f natstest.Frame) []byte {
		if f.FromClient {
			return nil
		}
		return timestamp.ReplaceAllFunc(bytes.Clone(f.Raw), func(text []byte) []byte {
			at, err := time.Parse(time.RFC3339Nano, string(text))
			if err != nil {
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

// A holder whose clock jumps to and fro keeps what it holds, and nobody else gets it.
func TestHolderWhoseClockJumps(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		p := natstest.NewProxy(t, b.srv)
		lease := acquire(t, b.locker(t, kvlock.LockerConfig{TTL: 5 * time.Second}, p.Through()), "l")
		near := b.flight(t, kvlock.Config{ClaimTTL: 5 * time.Second}, p.Through())
		claim := begin(t, near, "k", kvlock.BeginOptions{})
		held, stop := claim.Keep(t.Context(), 0)
		defer stop()
		locker, flight := b.locker(t, kvlock.LockerConfig{}), b.flight(t, kvlock.Config{})
		for i := range 60 {
			jump := jumps[i%len(jumps)]
			shiftClock(p, jump)
			pass(3 * time.Second)
			if off := get(t, near, "k").Created.Sub(get(t, flight, "k").Created); off != jump {
				t.Fatalf("the clock is off by %s, want %s", off, jump)
			}
			if _, err := locker.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{}); !errors.Is(err, kvlock.ErrHeld) {
				t.Fatalf("jump %d: got %v while the lock was held", i, err)
			}
			if _, err := flight.Begin(t.Context(), "k", kvlock.BeginOptions{}); !errors.Is(err, kvlock.ErrTaken) {
				t.Fatalf("jump %d: got %v while the key was claimed", i, err)
			}
		}
		if lease.Context().Err() != nil || held.Err() != nil {
			t.Errorf("ended: %v, %v", context.Cause(lease.Context()), context.Cause(held))
		}
		release(t, lease)
		complete(t, claim, "v")
	})
}

// One who waits, and whose clock jumps, takes over when the holder died, and not before its TTL is over.
func TestWaiterWhoseClockJumps(t *testing.T) {
	const ttl = 10 * time.Second
	for _, jump := range jumps {
		t.Run(jump.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bed) {
				far := natstest.NewProxy(t, b.srv)
				lease := acquire(t, b.locker(t, kvlock.LockerConfig{TTL: ttl}, far.Through()), "l")
				claim := begin(t, b.flight(t, kvlock.Config{ClaimTTL: ttl}, far.Through()), "k", kvlock.BeginOptions{})
				held, stop := claim.Keep(t.Context(), 0)
				defer stop()
				p := natstest.NewProxy(t, b.srv)
				locker, flight := b.locker(t, kvlock.LockerConfig{}, p.Through()), b.flight(t, kvlock.Config{}, p.Through())
				next := queue(t, locker, "l", 1, kvlock.AcquireOptions{})
				var computed, ended time.Time
				var both sync.WaitGroup
				both.Go(func() {
					_, err := flight.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
						computed = time.Now()
						return nil, nil
					}, kvlock.DoOptions{})
					if err != nil {
						t.Error(err)
					}
				})
				both.Go(func() {
					<-held.Done()
					ended = time.Now()
				})
				pass(ttl)
				shiftClock(p, jump)
				pass(ttl / 2)
				far.Partition()
				cut := time.Now()
				wantEndsFirst(t, lease, next)
				both.Wait()
				wantErr(t, context.Cause(held), kvlock.ErrLost)
				if took := computed.Sub(cut); !ended.Before(computed) || took > ttl+lateness+2*step {
					t.Errorf("the claim ended after %s, the key was computed after %s", ended.Sub(cut), took)
				}
			})
		})
	}
}

// wantEndsFirst waits until the lease has ended and the next holder has the lock, and compares when.
func wantEndsFirst(t *testing.T, lease *kvlock.Lease, next *waiting) {
	t.Helper()
	start := time.Now()
	var second time.Time
	var taken sync.WaitGroup
	taken.Go(func() {
		<-next.done
		second = time.Now()
	})
	<-lease.Context().Done()
	ended := time.Now()
	taken.Wait()
	if next.err != nil {
		t.Fatal(next.err)
	}
	wantErr(t, context.Cause(lease.Context()), kvlock.ErrLost)
	if !ended.Before(second) {
		t.Errorf("held until %s after the cut, the second holder came after %s", ended.Sub(start), second.Sub(start))
	}
	if token := next.lease.Token(); token.Compare(lease.Token()) <= 0 {
		t.Errorf("token %s after %s", token, lease.Token())
	}
	release(t, next.lease)
}

// The clock of the server jumps between a renewal and the coming of somebody else. Who comes does not take that for the
// end of the holder's TTL.
func TestServerWhoseClockJumps(t *testing.T) {
	for _, jump := range jumps {
		t.Run(jump.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bed) {
				lease := acquire(t, b.locker(t, kvlock.LockerConfig{TTL: 10 * time.Second}), "l")
				p := natstest.NewProxy(t, b.srv)
				other := b.locker(t, kvlock.LockerConfig{}, p.Through())
				for range 5 {
					_, err := other.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{}) // it knows the record as it was before
					wantErr(t, err, kvlock.ErrHeld)
					shiftClock(p, jump)
					_, err = other.Acquire(t.Context(), "l", kvlock.AcquireOptions{Wait: 5 * time.Second})
					wantErr(t, err, kvlock.ErrHeld)
					_, err = other.TryAcquire(t.Context(), "l", kvlock.AcquireOptions{})
					wantErr(t, err, kvlock.ErrHeld)
					shiftClock(p, 0)
					pass(time.Second)
				}
				if lease.Context().Err() != nil {
					t.Errorf("lost: %v", context.Cause(lease.Context()))
				}
				release(t, lease)
			})
		})
	}
}
