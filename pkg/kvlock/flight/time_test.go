package flight_test

import (
	"context"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// AutoRenew begins with a claim that is nearly over, or was begun for less than it is kept for.
func TestKeepOfAShortClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		f := b.Flight(t, flight.Config{})
		c := begin(t, f, "k", flight.BeginOptions{TTL: 4 * time.Second})
		pass(2500 * time.Millisecond)
		held, stop := c.AutoRenew(t.Context(), time.Minute)
		defer stop()
		pass(10 * time.Minute)
		check.That(t, held.Err() == nil, "ended: %v", context.Cause(held))
	})
}

// A holder that ends the claim while it is renewed has not lost it.
func TestKeepOfAClaimThatIsEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bed) {
		c := begin(t, b.Flight(t, flight.Config{}), "k", flight.BeginOptions{TTL: 4 * time.Second})
		held, stop := c.AutoRenew(t.Context(), 4*time.Second)
		complete(t, c, "v")
		pass(time.Hour)
		check.That(t, held.Err() == nil, "ended: %v", context.Cause(held))
		stop()
		check.ErrorIs(t, context.Cause(held), context.Canceled)
	})
}
