package flight_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// The connection is cut in one of several ways, at any moment between two renewals. The holder's context ends before
// another process can have the key.
func TestNeverTwoHoldersWhenCutOff(t *testing.T) {
	cuts := map[string]func(p *natstest.Proxy){
		"silence":      (*natstest.Proxy).Partition,
		"disconnected": (*natstest.Proxy).Cut,
		"one way: requests are lost": func(p *natstest.Proxy) {
			p.Filter(losing(func(f natstest.Frame) bool { return f.FromClient }))
		},
		"one way: answers are lost": func(p *natstest.Proxy) {
			p.Filter(losing(func(f natstest.Frame) bool { return !f.FromClient }))
		},
	}
	for name, cut := range cuts {
		for _, ttl := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} {
			runInBubble(t, name+"/"+ttl.String(), func(t *testing.T, b *bed) { cutOff(t, b, ttl, 0, cut) })
		}
	}
}

// An answer that comes late does not prolong the claim: it counts from when the request was sent.
func TestNeverTwoHoldersWhenAnswersAreSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		cutOff(t, b, 5*time.Second, 900*time.Millisecond, (*natstest.Proxy).Partition)
	})
}

// cutOff cuts the connection of a holder, and compares when its context ends with when another process gets the claim.
func cutOff(t *testing.T, b *bed, ttl, slow time.Duration, cut func(*natstest.Proxy)) {
	t.Helper()
	p := natstest.NewProxy(t, b.Srv)
	f := b.Flight(t, flight.Config{ClaimTTL: ttl}, p.Through())
	p.Slow(slow)
	c := begin(t, f, "k", flight.BeginOptions{})
	held, stop := c.AutoRenew(t.Context(), 0)
	defer stop()
	pass(3*ttl + rand.N(ttl))
	cut(p)
	start := time.Now()
	other := b.Flight(t, flight.Config{})
	took := make(chan time.Time, 1)
	go func() {
		for {
			_, err := other.Begin(t.Context(), "k", flight.BeginOptions{})
			if err == nil {
				took <- time.Now()
				return
			}
			pause := 100 * time.Millisecond
			// The holder's context ends in the last second of the TTL.
			if taken, ok := errors.AsType[*flight.TakenError](err); !ok || taken.Slot.TTL-taken.Slot.Age() < 2*time.Second {
				pause = 5 * time.Millisecond
			}
			pass(pause)
		}
	}()
	<-held.Done()
	ended := time.Now()
	wantErr(t, context.Cause(held), kvlock.ErrLost)
	if second := <-took; !ended.Before(second) {
		t.Errorf("held until %s after the cut, the second holder came after %s", ended.Sub(start), second.Sub(start))
	}
	if _, err := c.Complete(t.Context(), nil, 0); err == nil {
		t.Error("completed what somebody else holds")
	}
}
