package flight_test

import (
	"context"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// AutoRenew begins with a claim that is nearly over, or was begun for less than it is kept for.
func TestKeepOfAShortClaim(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f := b.Flight(t, flight.Config{})
		c := testbed.Begin(t, f, "k", flight.BeginOptions{TTL: 4 * time.Second})
		natstest.Pass(2500 * time.Millisecond)
		held, stop := c.AutoRenew(t.Context(), time.Minute)
		defer stop()
		natstest.Pass(10 * time.Minute)
		check.That(t, held.Err() == nil, "ended: %v", context.Cause(held))
	})
}

// A holder that ends the claim while it is renewed has not lost it.
func TestKeepOfAClaimThatIsEnded(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		c := testbed.Begin(t, b.Flight(t, flight.Config{}), "k", flight.BeginOptions{TTL: 4 * time.Second})
		held, stop := c.AutoRenew(t.Context(), 4*time.Second)
		testbed.Complete(t, c, "v")
		natstest.Pass(time.Hour)
		check.That(t, held.Err() == nil, "ended: %v", context.Cause(held))
		stop()
		check.ErrorIs(t, context.Cause(held), context.Canceled)
	})
}
