package flight_test

import (
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestWatchReturnsStatesAndThenChanges(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
	testbed.Complete(t, testbed.Begin(t, f, "done", flight.BeginOptions{}), "v")
	w := check.Must(f.Watch("done", "new", "done"))(t)
	defer w.Close()
	next := func() flight.Entry {
		t.Helper()
		return check.Must(w.Next(testbed.Within(t)))(t)
	}
	first := map[string]flight.State{}
	for range 2 {
		s := next()
		first[s.Key] = s.State
	}
	check.That(t, first["done"] == flight.Done && first["new"] == flight.Absent, "at first got %v", first)
	c := testbed.Begin(t, g, "new", flight.BeginOptions{})
	s := next()
	check.That(t, s.Key == "new" && s.State == flight.Pending && s.Claim == c.ID(), "got %+v, want the claim", s)
	check.OK(t, c.Fail(t.Context(), "r", 0))
	s = next()
	check.That(t, s.State == flight.Failed && s.Reason == "r", "got %+v, want the failure", s)
	c = testbed.Begin(t, g, "new", flight.BeginOptions{Seen: flight.Entry{Revision: 4}})
	check.Equal(t, next().State, flight.Pending, "state")
	check.OK(t, c.Release(t.Context()))
	check.Equal(t, next().State, flight.Absent, "state")
	check.OK(t, g.Invalidate(t.Context(), "done"))
	s = next()
	check.That(t, s.Key == "done" && s.State == flight.Absent, "got %+v, want absence", s)
}

// Ten thousand waiters, on as many keys and on one, are one subscription of the process, and no consumer.
func TestTenThousandWaiters(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 waiters: not with -short")
	}
	t.Parallel()
	b := testbed.New(t)
	p := natstest.NewProxy(t, b.Srv)
	f, g := b.Flight(t, flight.Config{}, p.Through()), b.Flight(t, flight.Config{})
	claims := make([]*flight.Claim, 500)
	for i := range claims {
		claims[i] = testbed.Begin(t, g, fmt.Sprintf("k%d", i), flight.BeginOptions{})
	}
	check.OK(t, check.Err(f.Get(t.Context(), "k0"))) // earlier subscriptions have passed the proxy then
	before := p.Subscriptions()
	var ready, all sync.WaitGroup
	for i := range 10_000 {
		ready.Add(1)
		all.Go(func() {
			w, err := f.Watch(claims[i%len(claims)].Key())
			if err != nil {
				t.Error(err)
				ready.Done()
				return
			}
			defer w.Close()
			s, err := w.Next(testbed.Within(t))
			ready.Done()
			for err == nil && s.State == flight.Pending {
				s, err = w.Next(testbed.Within(t))
			}
			check.That(t, err == nil && s.State == flight.Done, "got %+v, %v", s, err)
		})
	}
	ready.Wait()
	n := p.Subscriptions() - before
	check.That(t, n == 1 && consumers(t, b) == 0, "%d subscriptions and %d consumers for the waiters, want 1 and none", n, consumers(t, b))
	for _, c := range claims {
		testbed.Complete(t, c, "v")
	}
	all.Wait()
}

// A computation that waits for another process has no goroutine, however often that renews its claim: only its caller has one.
func TestWaitingComputationHasNoGoroutine(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		const n = 200
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		claims := make([]*flight.Claim, n)
		for i := range claims {
			claims[i] = testbed.Begin(t, g, fmt.Sprint("k", i), flight.BeginOptions{})
		}
		var all sync.WaitGroup
		for i, c := range claims {
			all.Go(func() {
				r, err := f.Do(t.Context(), c.Key(), nil, flight.DoOptions{FailOpen: i%2 == 0})
				check.That(t, err == nil && string(r.Value) == "v", "got %+v, %v", r, err)
			})
		}
		for range 3 {
			natstest.Pass(5300 * time.Millisecond) // nothing is due then
			synctest.Wait()
			var stacks strings.Builder
			check.OK(t, pprof.Lookup("goroutine").WriteTo(&stacks, 2))
			check.Equal(t, strings.Count(stacks.String(), ".(*Flight).obtain("), n, "waiting callers")
			check.Equal(t, strings.Count(stacks.String(), ".(*decision)."), 0, "waiting computations")
			for _, c := range claims {
				check.OK(t, c.Renew(t.Context(), 0))
			}
		}
		for _, c := range claims {
			testbed.Complete(t, c, "v")
		}
		all.Wait()
	})
}

// Pushes are lost. Every waiter learns of the end by a re-check, in at most twice its period.
func TestWaitersSurviveLostPushes(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		f, g := b.Flight(t, flight.Config{}, p.Through()), b.Flight(t, flight.Config{})
		p.Filter(natstest.Losing(func(f natstest.Frame) bool { return strings.HasPrefix(f.Subject, "rp.") }))
		for range 20 {
			key := fmt.Sprintf("k%d", rand.Uint64())
			c := testbed.Begin(t, g, key, flight.BeginOptions{})
			var all sync.WaitGroup
			var completed time.Time
			for range 50 {
				all.Go(func() {
					s, err := f.Wait(t.Context(), key)
					check.That(t, err == nil && string(s.Value) == "v", "got %+v, %v", s, err)
					late := time.Since(completed)
					check.That(t, late <= 2*time.Second+50*time.Millisecond, "learnt of it after %s", late)
				})
			}
			natstest.Pass(time.Duration(rand.Int64N(int64(5 * time.Second))))
			completed = time.Now()
			testbed.Complete(t, c, "v")
			all.Wait()
		}
	})
}

// A replica lags behind the pushes. Its absence is not news, neither to a watcher nor to a waiter.
func TestReplicaThatLagsIsNotBelieved(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		p := natstest.NewProxy(t, b.Srv)
		f, g := b.Flight(t, flight.Config{}, p.Through()), b.Flight(t, flight.Config{})
		c := testbed.Begin(t, g, "k", flight.BeginOptions{})
		w := check.Must(f.Watch("k"))(t)
		defer w.Close()
		s, err := w.Next(t.Context())
		check.Require(t, err == nil && s.State == flight.Pending, "%v, %v", s, err)
		stop := testbed.Lag(p)
		natstest.Pass(10 * time.Second)
		stop()
		testbed.Complete(t, c, "v")
		s, err = w.Next(t.Context())
		check.That(t, err == nil && s.State == flight.Done, "got %+v, %v; want the result", s, err)
	})
}

// Nonsense that a permitted user publishes as a push removes nothing.
func TestForgedPushRemovesNothing(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f := b.Flight(t, flight.Config{})
		nc, _ := natstest.Connect(t, b.Srv)
		c := testbed.Begin(t, f, "k", flight.BeginOptions{})
		w := check.Must(f.Watch("k"))(t)
		defer w.Close()
		check.OK(t, check.Err(w.Next(t.Context())))
		subject := "rp." + testbed.Bucket + ".$KV." + testbed.Bucket + ".k"
		for _, data := range []string{"", "garbage", `{"v":9}` + "\n"} {
			header := nats.Header{"Nats-Sequence": {"1"}, "Nats-Time-Stamp": {time.Now().Format(time.RFC3339Nano)}}
			check.OK(t, nc.PublishMsg(&nats.Msg{Subject: subject, Header: header, Data: []byte(data)}))
		}
		check.OK(t, nc.Publish(subject, nil))
		natstest.Pass(time.Second)
		testbed.Complete(t, c, "v")
		for s := (flight.Entry{}); s.State != flight.Done; {
			s = check.Must(w.Next(t.Context()))(t)
		}
	})
}

// The connection is closed for good: waits and writes fail at once, since to try again cannot help.
func TestClosedConnection(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		nc, js := natstest.Connect(t, b.Srv)
		f := testbed.FlightOn(t, js, flight.Config{})
		c := testbed.Begin(t, f, "k", flight.BeginOptions{})
		w := check.Must(f.Watch("k"))(t)
		defer w.Close()
		check.OK(t, check.Err(w.Next(t.Context())))
		nc.Close()
		start := time.Now()
		check.ErrorIs(t, check.Err(w.Next(t.Context())), kvlock.ErrUnavailable)
		check.ErrorIs(t, check.Err(c.Complete(t.Context(), []byte("v"), time.Minute)), kvlock.ErrUnavailable)
		check.ErrorIs(t, check.Err(f.Begin(t.Context(), "l", flight.BeginOptions{})), kvlock.ErrUnavailable)
		testbed.Took(t, "failed", start, 0, 0)
	})
}

// A bucket is deleted and recreated under a waiter.
func TestWaiterOnARecreatedBucket(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, g := b.Flight(t, flight.Config{}), b.Flight(t, flight.Config{})
		for range 5 {
			testbed.Complete(t, testbed.Begin(t, f, fmt.Sprint(rand.Uint64()), flight.BeginOptions{}), "v") // revisions grow
		}
		w := check.Must(f.Watch("k"))(t)
		defer w.Close()
		testbed.Begin(t, g, "k", flight.BeginOptions{})
		natstest.Pass(time.Second)
		s, err := w.Next(t.Context())
		check.That(t, err == nil && s.State == flight.Pending, "got %+v, %v", s, err)
		b.RecreateBucket(t, 0)
		natstest.Pass(5 * time.Second)
		testbed.Complete(t, testbed.Begin(t, g, "k", flight.BeginOptions{}), "v")
		start := time.Now()
		for s := (flight.Entry{}); s.State != flight.Done; {
			s = check.Must(w.Next(t.Context()))(t)
		}
		testbed.Took(t, "learnt of it", start, 0, 3*time.Second)
	})
}

func consumers(t testing.TB, b *testbed.Bed) int {
	t.Helper()
	stream := check.Must(b.JS.Stream(t.Context(), "KV_"+testbed.Bucket))(t)
	return stream.CachedInfo().State.Consumers
}
