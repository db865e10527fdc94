package kvlock

import (
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	t.Parallel()
	c := newClock()
	base, server := c.base, time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC) // years ahead of this process's
	after := base.Add
	aged := func(what string, then, local time.Time, want time.Duration) {
		t.Helper()
		if got := c.since(then, local); got != want {
			t.Errorf("%s: aged %s, want %s", what, got, want)
		}
	}
	left := func(what string, then time.Time, want time.Duration) {
		t.Helper()
		if got := c.until(then); got > want || got < want-time.Minute { // the test takes time
			t.Errorf("%s: %s left, want at most %s", what, got, want)
		}
	}

	aged("before anything is known", base.Add(-time.Second), base, time.Second)
	left("before anything is known", base.Add(time.Hour), time.Hour)

	c.asked(base, after(3*time.Second), server) // the answer was slow: it is 3 s later, or not
	aged("after an answer", server, after(3*time.Second), 0)
	aged("after an answer, later", server, after(10*time.Second), 7*time.Second)
	aged("what the server stored after that", server.Add(time.Minute), after(10*time.Second), 0)
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

	before := c.until(server)
	c.asked(base, base, time.Time{}) // an old server does not say
	c.learn(base, time.Time{})
	if after := c.until(server); before-after > time.Minute {
		t.Errorf("%s left instead of %s", after, before)
	}
}
