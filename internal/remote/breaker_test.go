package remote_test

import (
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	cfg := remote.BreakerConfig{Parties: 2, First: 10 * time.Second, Last: 15 * time.Second, Trial: 3 * time.Second, Grace: time.Second}
	now := time.Now()
	var b remote.Breaker
	waits := func(when, party string, want time.Duration) {
		t.Helper()
		check.Equal(t, b.Wait(cfg, party, now), want, when+", the wait of "+party)
	}
	fails := func(party string, certain, opens bool) {
		t.Helper()
		check.Equal(t, b.Fail(cfg, party, now, certain), opens, "opens for "+party)
	}

	fails("a", false, false)
	fails("a", false, false) // one party may do what always fails
	waits("closed", "a", 0)
	fails("b", false, true)
	fails("c", false, false) // a call that was under way
	waits("open", "d", 10*time.Second)
	waits("open", "a", 15*time.Second)

	now = now.Add(10 * time.Second)
	waits("after the pause", "d", 0)
	b.Call(cfg, "d", now)
	waits("while d tests", "e", 3*time.Second)
	b.Leave("e", now) // not the test
	waits("while d tests", "e", 3*time.Second)
	b.Leave("d", now)
	waits("after a test without an outcome", "e", 0)
	b.Call(cfg, "e", now)
	fails("e", false, false)
	waits("after a test that failed", "f", 15*time.Second)
	b.Hold(now.Add(time.Second))
	waits("held for less", "f", 15*time.Second)
	b.Hold(now.Add(time.Minute))
	waits("held for longer", "f", time.Minute)

	now = now.Add(time.Minute)
	b.Call(cfg, "f", now)
	check.That(t, b.Succeed(now) && !b.IsOpen() && b.Worked().Equal(now), "a success does not close it")
	waits("closed", "a", 0)
	fails("a", true, false) // so soon after a success
	now = now.Add(time.Second)
	fails("a", true, true)
	waits("open again", "b", 10*time.Second)
}
