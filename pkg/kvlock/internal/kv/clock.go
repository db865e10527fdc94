package kv

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Clock bounds the server's time from below and above, on this process's monotonic clock. So a wall clock that is wrong, or
// is set while the process runs, does not change the age of a value.
//
// The time at which a server stored a message is a lower bound; the highest of all counts. The time in a server's answer
// (when a store is opened and, with a memory, every second) is a bound on both sides. It replaces the former bounds, because
// the clock of the server may have been set, and another server may answer. Ages are counted from the lower bound, so that a
// slow answer does not make a claim look expired. The rest of a TTL is counted from the upper bound, so that no value is
// served past its end.
type Clock struct {
	base  time.Time    // of this process
	least atomic.Int64 // the server's time at base, in nanoseconds since 1970, at least; 0 when unknown
	most  atomic.Int64 // the same, at most
}

func newClock() *Clock { return &Clock{base: time.Now()} }

// at returns the server's time at base, given that it was server at this process's time local.
func (c *Clock) at(local, server time.Time) int64 {
	return server.UnixNano() - int64(local.Sub(c.base))
}

// asked applies an answer with the server's time, which was read between the times sent and answered of this process.
func (c *Clock) asked(sent, answered, server time.Time) {
	if !server.IsZero() {
		c.least.Store(c.at(answered, server))
		c.most.Store(c.at(sent, server))
	}
}

// learn records that the server's time was server or later at this process's time local.
func (c *Clock) learn(local, server time.Time) {
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

// Since returns how long ago, at least, the server's time was then, at local, never negative.
func (c *Clock) Since(then, local time.Time) time.Duration {
	least := c.least.Load()
	if least == 0 {
		return max(0, local.Sub(then))
	}
	return max(0, time.Duration(least-c.at(local, then)))
}

// Now returns the server's time, at least.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if least := c.least.Load(); least != 0 {
		return time.Unix(0, least).Add(now.Sub(c.base))
	}
	return now
}

// Until returns how long it is, at least, until the server's time is then.
func (c *Clock) Until(then time.Time) time.Duration {
	now := time.Now()
	most := c.most.Load()
	if most == 0 {
		return then.Sub(now)
	}
	return time.Duration(c.at(now, then) - most)
}

// MaxTTL is the longest TTL: far below an overflow of seconds, far above the TTLs in use.
const MaxTTL = 10 * 365 * 24 * time.Hour

// CheckTTL refuses a TTL that the server would round: the server counts whole seconds and drops fractions.
func CheckTTL(ttl time.Duration) error {
	if ttl < time.Second || ttl > MaxTTL || ttl%time.Second != 0 {
		return fmt.Errorf("%s is not a TTL: want whole seconds, from 1s to %s", ttl, MaxTTL)
	}
	return nil
}

// Seconds returns a TTL in the unit of records and headers.
func Seconds(ttl time.Duration) int64 { return int64(ttl / time.Second) }

// MarkerTTL returns how long a marker must stay that hides a value with ttl left: a server that was killed may restore the
// hidden message when it restarts, and the marker has to outlive that.
func MarkerTTL(ttl time.Duration) time.Duration { return min(2*max(ttl, time.Minute), MaxTTL) }

// Deadline returns until when an entry certainly exists that was written with ttl by a request sent at sent: its TTL counts
// from when the server stored it, which was later. The margin, a quarter of the TTL and at most a second, is for the
// server's clock running faster than this process's.
func Deadline(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - min(time.Second, ttl/4))
}

// deadlineContext is a context that reports its end on time. The timer that ends it may be late: after a pause of the
// process its goroutines may run before its timers do, and another process may hold the key by then.
type deadlineContext struct {
	context.Context //nolint:containedctx // it is one

	end func() // ends the context, if its time is over
}

// DeadlineContext returns ctx with a Done and an Err that first call end, which ends ctx if its time is over.
func DeadlineContext(ctx context.Context, end func()) context.Context {
	return deadlineContext{ctx, end}
}

// Done returns a channel that is closed already when the context's time is over.
func (c deadlineContext) Done() <-chan struct{} {
	if c.Context.Err() == nil {
		c.end()
	}
	return c.Context.Done()
}

// Err returns nil only until the context's time is over.
func (c deadlineContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.end()
	return c.Context.Err()
}
