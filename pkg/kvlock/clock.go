package kvlock

import (
	"sync/atomic"
	"time"
)

// clock knows the server's time on this process's monotonic clock, between two bounds: a wall clock that is wrong, or is
// set while the process runs, makes no value older or younger than it is.
//
// What a server stored says that its time is that or later, so of all that is seen the highest counts. What a server says
// of its time when it is asked, as when a store is opened and with a memory every second, bounds that on both sides, and
// replaces what was known: its clock may have been set, and another one may answer. Ages are counted from the lower bound:
// nobody takes a claim for over because an answer was slow. What is left of a TTL is counted from the upper one: nothing
// is served past its end because of that.
type clock struct {
	base  time.Time    // of this process
	least atomic.Int64 // the server's time at base, in nanoseconds since 1970, at least; 0 when unknown
	most  atomic.Int64 // the same, at most
}

func newClock() *clock { return &clock{base: time.Now()} }

// at is what the server's time was at base if it was server when this process's was local.
func (c *clock) at(local, server time.Time) int64 {
	return server.UnixNano() - int64(local.Sub(c.base))
}

// asked takes note that a server said its time, at some time between sent and answered of this process.
func (c *clock) asked(sent, answered, server time.Time) {
	if !server.IsZero() {
		c.least.Store(c.at(answered, server))
		c.most.Store(c.at(sent, server))
	}
}

// learn takes note that the server's time was server when this process's was local, or later.
func (c *clock) learn(local, server time.Time) {
	if server.IsZero() {
		return
	}
	at := c.at(local, server)
	raise(&c.least, at)
	if c.most.Load() != 0 {
		raise(&c.most, at)
	}
}

func raise(bound *atomic.Int64, at int64) {
	for {
		now := bound.Load()
		if at <= now || bound.CompareAndSwap(now, at) {
			return
		}
	}
}

// since is how long ago, at least, the server's time was then, at local, never negative.
func (c *clock) since(then, local time.Time) time.Duration {
	least := c.least.Load()
	if least == 0 {
		return max(0, local.Sub(then))
	}
	return max(0, time.Duration(least-c.at(local, then)))
}

// until is how long it takes, at least, until the server's time is then.
func (c *clock) until(then time.Time) time.Duration {
	now := time.Now()
	most := c.most.Load()
	if most == 0 {
		return then.Sub(now)
	}
	return time.Duration(c.at(now, then) - most)
}
