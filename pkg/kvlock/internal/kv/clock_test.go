package kv

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestClock(t *testing.T) {
	t.Parallel()
	c := newClock()
	base, server := c.base, time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC) // years ahead of this process's
	after := base.Add
	aged := func(what string, then, local time.Time, want time.Duration) {
		t.Helper()
		check.Equal(t, c.Since(then, local), want, what+": aged")
	}
	left := func(what string, then time.Time, want time.Duration) {
		t.Helper()
		got := c.Until(then)
		check.That(t, got <= want && got >= want-time.Minute, "%s: %s left, want at most %s", what, got, want) // the test takes time
	}

	aged("before anything is known", base.Add(-time.Second), base, time.Second)
	left("before anything is known", base.Add(time.Hour), time.Hour)

	c.asked(base, after(3*time.Second), server) // the answer was slow: it is 3 s later, or not
	aged("after an answer", server, after(3*time.Second), 0)
	aged("after an answer, later", server, after(10*time.Second), 7*time.Second)
	aged("an entry that the server stored after that", server.Add(time.Minute), after(10*time.Second), 0)
	left("after an answer", server.Add(time.Hour), time.Hour)

	c.learn(after(10*time.Second), server) // stored long ago: says nothing
	aged("after an old message", server, after(10*time.Second), 7*time.Second)
	c.learn(after(10*time.Second), server.Add(9*time.Second)) // just stored
	aged("after a new message", server, after(10*time.Second), 9*time.Second)
	left("after a new message", server.Add(time.Hour), time.Hour)
	c.learn(after(10*time.Second), server.Add(40*time.Second)) // the server's clock was set forward, by 30 s
	aged("after a message of the future", server, after(10*time.Second), 40*time.Second)
	left("after a message of the future", server.Add(time.Hour), time.Hour-30*time.Second)

	back := server.Add(-time.Hour) // the clock is set back, or another server's
	c.learn(after(20*time.Second), back)
	aged("after a message of the past", back, after(20*time.Second), time.Hour+50*time.Second)
	c.asked(after(20*time.Second), after(20*time.Second), back)
	aged("after the next answer", back, after(21*time.Second), time.Second)
	left("after the next answer", back.Add(time.Hour), time.Hour+20*time.Second)

	before := c.Until(server)
	c.asked(base, base, time.Time{}) // an old server does not say
	c.learn(base, time.Time{})
	remain := c.Until(server)
	check.That(t, before-remain <= time.Minute, "%s left instead of %s", remain, before)
}

// A context whose time is over has ended, and so have those made from it, before any timer has run.
func TestDeadlineContextEndsOnTime(t *testing.T) {
	t.Parallel()
	over, cause := false, errors.New("over")
	begin := func() (ctx, derived context.Context) {
		inner, cancel := context.WithCancelCause(t.Context())
		p := DeadlineContext(inner, func() {
			if over {
				cancel(cause)
			}
		})
		derived, stop := context.WithCancel(p)
		t.Cleanup(stop)
		return p, derived
	}
	asks := map[string]func(context.Context) bool{
		"Err": func(ctx context.Context) bool { return ctx.Err() != nil },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
	}
	for name, ended := range asks {
		over = false
		p, derived := begin()
		check.That(t, !ended(p), "%s: ended before it was over", name)
		over = true
		check.That(t, ended(p), "%s: not ended when it was over", name)
		got := context.Cause(derived)
		check.That(t, derived.Err() != nil && errors.Is(got, cause), "%s: a derived context has the cause %v, want %v", name, got, cause)
	}
}

func TestDeadlineIsBeforeTheServersAndCountsFromSending(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second: 750 * time.Millisecond, 2 * time.Second: 1500 * time.Millisecond, 4 * time.Second: 3 * time.Second,
		10 * time.Second: 9 * time.Second, time.Minute: 59 * time.Second, 24 * time.Hour: 24*time.Hour - time.Second,
	} {
		check.Equal(t, Deadline(sent, ttl).Sub(sent), want, fmt.Sprintf("TTL %s: deadline after", ttl))
	}
}

func TestMarkersOutliveWhatTheyHide(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{0, time.Second, time.Minute, 7 * 24 * time.Hour, MaxTTL} {
		got := MarkerTTL(ttl)
		check.That(t, got >= ttl && CheckTTL(got) == nil, "marker over a TTL of %s has %s: %v", ttl, got, CheckTTL(got))
	}
}

func TestTTLsAreWholeSeconds(t *testing.T) {
	t.Parallel()
	for ttl, ok := range map[time.Duration]bool{
		time.Second: true, time.Minute: true, MaxTTL: true,
		0: false, -time.Second: false, time.Millisecond: false, 1500 * time.Millisecond: false, MaxTTL + time.Second: false,
	} {
		err := CheckTTL(ttl)
		check.That(t, (err == nil) == ok, "%s: got %v, want ok %v", ttl, err, ok)
	}
}
