package flight_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// killable returns a Flight, and a function that closes its connection as the death of its process does.
func killable(t *testing.T, b *testbed.Bed, cfg flight.Config) (f *flight.Flight, die func()) {
	t.Helper()
	nc, js := natstest.Connect(t, b.Srv)
	return testbed.FlightOn(t, js, cfg), nc.Close
}

// takesOver lets f wait in Do for key "k", calls after in the middle of it, and checks that f then computes itself, after least at the
// earliest and most at the latest.
func takesOver(t *testing.T, f *flight.Flight, least, most time.Duration, after func()) {
	t.Helper()
	var runs atomic.Int64
	var took time.Time
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := f.Do(t.Context(), "k", value(&runs, "ours"), flight.DoOptions{})
		took = time.Now()
		check.That(t, err == nil && r.Outcome == flight.Computed && string(r.Value) == "ours" && runs.Load() == 1,
			"got %+v, %v; want a take-over", r, err)
	}()
	natstest.Pass(time.Second)
	start := time.Now()
	after()
	<-done
	waited := took.Sub(start)
	check.That(t, waited >= least && waited <= most, "taken over after %s, want %s to %s", waited, least, most)
}

func TestDeadOwnerIsTakenOverAtOnce(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		var o observed
		f, die := killable(t, b, flight.Config{Instance: "f"})
		c := testbed.Begin(t, f, "k", flight.BeginOptions{})
		g := o.flight(t, b, flight.Config{})
		takesOver(t, g, 0, 50*time.Millisecond, die)
		got := o.wantEvents(t, "take-over", flight.EventWaiting, flight.EventAcquired, flight.EventTakeOver, flight.EventReleased, flight.EventReturned)
		e := got[2]
		check.That(t, e.Claim == c.ID() && e.Owner == "f" && e.Attempt == 2 && e.Elapsed >= time.Second, "got %+v, want it of the claim of f", e)
		s := wantEntry(t, g, "k", flight.Done, "ours")
		check.That(t, s.Claim == c.ID() && s.Attempt == 2, "got %+v, want the second attempt of the claim", s)
	})
}

// An owner that cannot be probed keeps its claim until the TTL, and so does a slow owner that is alive.
func TestSlowOrUnknownOwnerKeepsItsClaim(t *testing.T) {
	const ttl = 20 * time.Second
	for name, tt := range map[string]struct {
		owner, waiter flight.Config
		handoff       bool
		silence       func(p *natstest.Proxy)
	}{
		"frozen or cut off, and its connection open": {silence: (*natstest.Proxy).Partition},
		"an owner that does not tell":                {owner: flight.Config{ProbeInterval: -1}, silence: (*natstest.Proxy).Cut},
		"a waiter that does not ask":                 {waiter: flight.Config{ProbeInterval: -1}, silence: (*natstest.Proxy).Cut},
		"a claim that waits to be resumed":           {handoff: true, silence: (*natstest.Proxy).Cut},
		"slow":                                       {silence: func(p *natstest.Proxy) { p.Slow(10 * time.Second) }},
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			f, p := b.ProxiedFlight(t, tt.owner)
			testbed.Begin(t, f, "k", flight.BeginOptions{TTL: ttl, HandOff: tt.handoff})
			rest := ttl - time.Second // of the claim, when it falls silent
			takesOver(t, b.Flight(t, tt.waiter), rest-10*time.Millisecond, rest+testbed.Lateness+testbed.Step, func() { tt.silence(p) })
		})
	}
}

// A live owner that loses its connection counts as dead. When it comes back its result is refused, and it gets the other.
func TestOwnerThatWasTakenOverWhileItLived(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		f, g := b.Flight(t, flight.Config{}, p.Through()), b.Flight(t, flight.Config{})
		var all sync.WaitGroup
		all.Go(func() {
			fn := func(context.Context) ([]byte, error) { natstest.Pass(10 * time.Second); return []byte("zombie's"), nil }
			wantDo(t, f, fn, flight.DoOptions{}, "ours", flight.Coalesced)
		})
		natstest.Pass(time.Second)
		takesOver(t, g, 0, 50*time.Millisecond, p.Cut)
		p.Heal()
		all.Wait()
		wantEntry(t, g, "k", flight.Done, "ours")
	})
}

// The server restarts. Owner and waiters live, and come back in any order, some only after seconds: nothing is computed
// twice.
func TestRestartIsNotADeath(t *testing.T) {
	for name, wait := range map[string]time.Duration{"owner is back first": 0, "waiters are back first": 3 * time.Second} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			f, p := b.ProxiedFlight(t, flight.Config{})
			var runs atomic.Int64
			fn := func(context.Context) ([]byte, error) {
				runs.Add(1)
				natstest.Pass(30 * time.Second)
				return []byte("v"), nil
			}
			flights := []*flight.Flight{f, b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})}
			var all sync.WaitGroup
			for _, f := range flights {
				all.Go(func() {
					r, err := f.Do(t.Context(), "k", fn, flight.DoOptions{})
					check.That(t, err == nil && string(r.Value) == "v", "got %+v, %v", r, err)
				})
				natstest.Pass(time.Second)
			}
			for range 3 {
				p.Cut()
				check.OK(t, b.Srv.Restart(t.Context()))
				natstest.Pass(wait)
				p.Heal()
				natstest.Pass(3 * time.Second)
			}
			all.Wait()
			check.Equal(t, runs.Load(), 1, "computed")
		})
	}
}

// The owner dies while the server restarts. It is found out after the time that it had to come back, before its TTL.
func TestOwnerThatDiesInARestart(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, die := killable(t, b, flight.Config{})
		testbed.Begin(t, f, "k", flight.BeginOptions{})
		takesOver(t, b.Flight(t, flight.Config{}), 5*time.Second, 8*time.Second, func() {
			die()
			check.OK(t, b.Srv.Restart(t.Context()))
		})
	})
}

// A denied probe is no death: neither of an owner that may not answer, nor for a waiter that may not ask.
func TestDeniedProbesAreNoDeath(t *testing.T) {
	for name, denied := range map[string]server.Permissions{
		"may not subscribe": {Subscribe: &server.SubjectPermission{Deny: []string{"kvlock.>"}}},
		"may not publish":   {Publish: &server.SubjectPermission{Deny: []string{"kvlock.>"}}},
	} {
		for _, who := range []string{"owner", "waiter"} {
			natstest.RunBubble(t, who+" "+name, func(t *testing.T, srv *natsrun.Server) { testDeniedProbes(t, srv, who) }, natstest.Restrict(denied))
		}
	}
}

// testDeniedProbes denies it to the owner or to the waiter.
func testDeniedProbes(t *testing.T, srv *natsrun.Server, who string) {
	t.Helper()
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	options := map[string][]nats.Option{who: {natstest.Restricted(), quiet}}
	b := testbed.On(t, srv, kvlock.BucketConfig{Bucket: testbed.Bucket})
	as := func(who string) *flight.Flight { return b.Flight(t, flight.Config{}, options[who]...) }
	c, waiter := testbed.Begin(t, as("owner"), "k", flight.BeginOptions{}), as("waiter")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // many probes
	defer cancel()
	check.ErrorIs(t, check.Err(waiter.Do(ctx, "k", nil, flight.DoOptions{})), context.DeadlineExceeded)
	testbed.Complete(t, c, "v")
}

// A message is delivered again. Its first receiver keeps the claim while its process is there, and no longer.
func TestResumeYieldsToTheLiving(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, die := killable(t, b, flight.Config{})
		g := b.Flight(t, flight.Config{})
		ref := testbed.Begin(t, f, "k", flight.BeginOptions{HandOff: true}).Ref()
		check.OK(t, check.Err(f.Resume(t.Context(), "k", ref, flight.ResumeOptions{})))
		_, err := g.Resume(t.Context(), "k", ref, flight.ResumeOptions{Yield: true})
		var taken *flight.TakenError
		check.Require(t, errors.As(err, &taken) && taken.Entry.State == flight.Pending, "got %v while its holder is there", err)
		die()
		start := time.Now()
		c := check.Must(g.Resume(t.Context(), "k", ref, flight.ResumeOptions{Yield: true}))(t)
		testbed.Took(t, "resumed", start, 0, 50*time.Millisecond)
		testbed.Complete(t, c, "v")
	})
}

// Nothing is probed when no caller waits.
func TestProbesOnlyWhileSomebodyWaits(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		watcher, _ := natstest.Connect(t, b.Srv)
		var probes atomic.Int64
		check.OK(t, check.Err(watcher.Subscribe("kvlock.alive."+testbed.Bucket+".*.probe", func(*nats.Msg) { probes.Add(1) })))
		testbed.Begin(t, f, "k", flight.BeginOptions{})
		testbed.Begin(t, f, "l", flight.BeginOptions{})
		natstest.Pass(10 * time.Second)
		check.Equal(t, probes.Swap(0), 0, "probes.Swap(0)")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for _, key := range []string{"k", "k", "l"} {
			all.Go(func() { check.ErrorIs(t, check.Err(g.Do(ctx, key, nil, flight.DoOptions{})), context.DeadlineExceeded) })
		}
		all.Wait()
		// For all that wait, one every 25 ms at first and one every 125 ms after five seconds.
		n := probes.Swap(0)
		check.That(t, n >= 130 && n <= 160, "%d probes in 10 s", n)
		natstest.Pass(time.Minute)
		n = probes.Load()
		check.That(t, n <= 2, "%d probes after all have gone", n)
	})
}

// Processes that compute a key each and wait for those of all others send few probes, and each is probed: when one dies
// another takes over soon.
func TestManyThatWaitForEachOther(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		const n = 24
		watcher, _ := natstest.Connect(t, b.Srv)
		var probes atomic.Int64
		sub := check.Must(watcher.Subscribe("kvlock.alive."+testbed.Bucket+".*.probe", func(*nats.Msg) { probes.Add(1) }))(t)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var flights []*flight.Flight
		first, die := killable(t, b, flight.Config{})
		testbed.Begin(t, first, "0", flight.BeginOptions{})
		for len(flights) < n-1 {
			flights = append(flights, b.Flight(t, flight.Config{}))
			testbed.Begin(t, flights[len(flights)-1], fmt.Sprint(len(flights)), flight.BeginOptions{})
		}
		taken := make(chan time.Time, n)
		for i, f := range flights {
			for key := range n {
				if key == i+1 {
					continue
				}
				all.Go(func() {
					_, err := f.Do(ctx, fmt.Sprint(key), func(ctx context.Context) ([]byte, error) {
						taken <- time.Now()
						<-ctx.Done()
						return nil, ctx.Err()
					}, flight.DoOptions{})
					check.ErrorIs(t, err, context.Canceled)
				})
			}
		}
		natstest.Pass(time.Second)
		probes.Store(0)
		natstest.Pass(10 * time.Second)
		sent := probes.Load()
		check.That(t, sent <= 10*200 && sent >= n, "%d probes in 10 s, want at most 200 a second", sent)
		check.OK(t, sub.Unsubscribe()) // it would receive the probes of a member that is gone
		check.OK(t, watcher.Flush())
		start := time.Now()
		die()
		took := (<-taken).Sub(start)
		check.That(t, took <= 500*time.Millisecond, "taken over after %s", took)
		cancel()
		all.Wait()
	})
}
