package natstest

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestTimersAreThoseOfNATSGo finds a timer in the pool that a connection has used, and none
// once they are forgotten. It fails when nats.go keeps its timers elsewhere.
func TestTimersAreThoseOfNATSGo(t *testing.T) {
	nc, _ := Connect(t, Server(t))
	found := false
	for range 1000 { // under the race detector a pool drops some values
		check.OK(t, nc.Flush())
		if _, found = timers.pool.Get().(*time.Timer); found {
			break
		}
	}
	check.That(t, found, "no timer is in the pool")
	check.OK(t, nc.Flush())
	forgetTimers()
	left := timers.pool.Get()
	check.That(t, left == nil, "%T is left", left)
}
