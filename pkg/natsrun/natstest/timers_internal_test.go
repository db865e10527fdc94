package natstest

import (
	"testing"
	"time"
)

// TestTimersAreThoseOfNATSGo finds a timer in the pool that a connection has used, and none
// once they are forgotten. It fails when nats.go keeps its timers elsewhere.
func TestTimersAreThoseOfNATSGo(t *testing.T) {
	nc, _ := Connect(t, Server(t))
	found := false

	for range 1000 { // the race detector has a pool drop some of what it gets
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}

		if _, found = timers.pool.Get().(*time.Timer); found {
			break
		}
	}

	if !found {
		t.Error("no timer is in the pool")
	}

	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}

	forgetTimers()

	if left := timers.pool.Get(); left != nil {
		t.Errorf("%T is left", left)
	}
}
