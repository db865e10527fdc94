package flight_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// observed keeps the events of a Flight.
type observed struct {
	mu     sync.Mutex
	events []flight.Event
}

func (o *observed) observe(_ context.Context, e flight.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// take returns the events since its last call.
func (o *observed) take() []flight.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	events := o.events
	o.events = nil
	return events
}

// wantEvents compares the kinds of the events since the last call, and returns the events.
func (o *observed) wantEvents(t *testing.T, what string, want ...flight.EventKind) []flight.Event {
	t.Helper()
	events := o.take()
	var got []flight.EventKind
	for _, e := range events {
		got = append(got, e.Kind)
		check.That(t, e.Key == "k" && e.Elapsed >= 0, "%s: got %+v, want it of key k", what, e)
	}
	check.Require(t, slices.Equal(got, want), "%s: got %s, want %s", what, got, want)
	return events
}

func (o *observed) flight(t *testing.T, b *testbed.Bed, cfg flight.Config) *flight.Flight {
	t.Helper()
	cfg.Observe = o.observe
	return b.Flight(t, cfg)
}

func TestEventsOfOneProcess(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		var o observed
		f := o.flight(t, b, flight.Config{Instance: "f"})
		var runs atomic.Int64
		r, err := f.Do(t.Context(), "k", value(&runs, "v"), flight.DoOptions{})
		check.Require(t, err == nil && r.Claim != "", "got %+v, %v", r, err)
		got := o.wantEvents(t, "computed", flight.EventAcquired, flight.EventReleased, flight.EventReturned)
		for _, e := range got {
			check.That(t, e.Claim == r.Claim && e.Owner == "f" && e.Err == nil, "got %+v, want it of claim %s and f", e, r.Claim)
		}
		check.That(t, got[1].State == flight.Done && got[2].Outcome == flight.Computed && got[0].Attempt == 1, "got %+v", got)

		check.OK(t, check.Err(f.Do(t.Context(), "k", value(&runs, "w"), flight.DoOptions{})))
		got = o.wantEvents(t, "cached", flight.EventReturned)
		check.That(t, got[0].Outcome == flight.Cached && got[0].Claim == r.Claim, "got %+v", got)
		check.OK(t, f.Invalidate(t.Context(), "k"))

		_, err = f.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return nil, errOven }, flight.DoOptions{})
		check.ErrorIs(t, err, errOven)
		got = o.wantEvents(t, "failed", flight.EventAcquired, flight.EventReleased, flight.EventReturned)
		check.ErrorIs(t, got[1].Err, flight.ErrFailed)
		check.ErrorIs(t, got[2].Err, errOven)
		check.That(t, got[1].State == flight.Failed && got[2].Outcome == 0, "got %+v", got)

		_, err = f.Do(t.Context(), "k", func(context.Context) ([]byte, error) { panic("fire") }, flight.DoOptions{})
		got = o.wantEvents(t, "panic", flight.EventAcquired, flight.EventPanic, flight.EventReleased, flight.EventReturned)
		check.ErrorIs(t, got[1].Err, err)
	})
}

func TestEventsOfWhoWaits(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		var owner, waiter observed
		f, g := owner.flight(t, b, flight.Config{Instance: "f"}), waiter.flight(t, b, flight.Config{Instance: "g"})
		c := testbed.Begin(t, f, "k", flight.BeginOptions{})
		check.ErrorIs(t, check.Err(g.Begin(t.Context(), "k", flight.BeginOptions{})), flight.ErrTaken)
		got := waiter.wantEvents(t, "refused", flight.EventHeld)
		check.That(t, got[0].Claim == c.ID() && got[0].Owner == "f", "got %+v", got)

		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		check.ErrorIs(t, check.Err(g.Do(impatient, "k", nil, flight.DoOptions{})), context.DeadlineExceeded)
		natstest.Pass(time.Second) // the computation that it began ends
		got = waiter.wantEvents(t, "gave up", flight.EventWaiting, flight.EventWaitTimeout, flight.EventReturned)
		check.That(t, got[0].Claim == c.ID() && got[0].Owner == "f" && got[1].Elapsed == time.Second, "got %+v", got)
		check.Equal(t, g.Stats().Waits, 1, "waits")

		var all sync.WaitGroup
		all.Go(func() {
			r, err := g.Do(t.Context(), "k", nil, flight.DoOptions{})
			check.That(t, err == nil && r.Claim == c.ID(), "got %+v, %v", r, err)
		})
		natstest.Pass(time.Second)
		testbed.Complete(t, c, "v")
		all.Wait()
		got = waiter.wantEvents(t, "coalesced", flight.EventWaiting, flight.EventCoalesced, flight.EventReturned)
		for _, e := range got {
			check.That(t, e.Claim == c.ID() && e.Owner == "f", "got %+v, want it of the claim of f", e)
		}
		check.That(t, got[1].Elapsed == time.Second && got[2].Outcome == flight.Coalesced, "got %+v", got)
		owner.wantEvents(t, "owner", flight.EventAcquired, flight.EventReleased)
	})
}

func TestEventsOfWhoJoins(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		var o observed
		f := o.flight(t, b, flight.Config{Instance: "f"})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				fn := func(context.Context) ([]byte, error) { natstest.Pass(time.Second); return nil, nil }
				check.ErrorIs(t, check.Err(f.Do(t.Context(), "k", fn, flight.DoOptions{})), nil)
			})
		}
		all.Wait()
		count := map[flight.EventKind]int{}
		for _, e := range o.take() {
			count[e.Kind]++
		}
		check.Equal(t, fmt.Sprint(count), "map[acquired:1 coalesced:1 released:1 returned:2 waiting:1]", "result")
	})
}

func TestEventsOfALostClaim(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		var o, other observed
		p := natstest.NewProxy(t, b.Srv)
		cfg := flight.Config{ClaimTTL: 5 * time.Second}
		cfg.Observe = o.observe
		f, g := b.Flight(t, cfg, p.Through()), other.flight(t, b, flight.Config{})
		c := testbed.Begin(t, f, "k", flight.BeginOptions{})
		held, stop := c.AutoRenew(t.Context(), 0)
		defer stop()
		p.Partition()
		var runs atomic.Int64
		r, err := g.Do(t.Context(), "k", value(&runs, "v"), flight.DoOptions{})
		check.Require(t, err == nil && r.Outcome == flight.Computed, "got %+v, %v", r, err)
		<-held.Done()
		p.Heal()
		natstest.Pass(10 * time.Second)
		check.ErrorIs(t, check.Err(c.Complete(t.Context(), nil, 0)), kvlock.ErrLost)
		events := o.take()
		lost, failed := 0, 0
		for _, e := range events {
			switch e.Kind {
			case flight.EventLost:
				lost++
				check.ErrorIs(t, e.Err, kvlock.ErrLost)
			case flight.EventRenewalFailed:
				failed++
			default:
			}
		}
		check.That(t, lost == 1 && failed != 0, "got %+v; want that it was lost once, and renewals that failed", events)
		got := other.wantEvents(t, "take-over", flight.EventWaiting, flight.EventAcquired, flight.EventTakeOver, flight.EventReleased, flight.EventReturned)
		check.That(t, got[2].Claim == c.ID() && got[2].Elapsed >= 4*time.Second, "got %+v, want the claim that was taken over", got[2])
		check.That(t, f.Stats().TakeOvers == 0 && g.Stats().TakeOvers == 1, "got %+v, %+v", f.Stats(), g.Stats())
	})
}
