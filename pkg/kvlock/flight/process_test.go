package flight_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// holder is a process that holds a claim. It prints "holds", and after the end of its claim how that ended and the answer
// to its result.
var holder = crash.Role[holding]{Name: "holder", Run: func(ctx context.Context, claim holding) error {
	nc, err := nats.Connect(claim.URL, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	f, err := flight.New(ctx, js, flight.Config{Bucket: testbed.Bucket, ClaimTTL: claim.TTL})
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := f.Begin(ctx, "k", flight.BeginOptions{})
	if err != nil {
		return err
	}
	held, stop := c.AutoRenew(ctx, 0)
	defer stop()
	if _, err := fmt.Fprintln(os.Stdout, "holds"); err != nil {
		return err
	}
	<-held.Done()
	_, err = c.Complete(ctx, []byte("zombie's"), 0)
	_, err = fmt.Fprintf(os.Stdout, "ended lost: %v, completed lost: %v\n",
		errors.Is(context.Cause(held), kvlock.ErrLost), errors.Is(err, kvlock.ErrLost))
	return err
}}

// holding is the claim of a holder, and its server.
type holding struct {
	TTL time.Duration
	URL string
}

// A holder is killed with -9 while others wait. One of them takes over, long before the claim's TTL, and all get its
// result.
func TestHolderIsKilled(t *testing.T) {
	t.Parallel()
	b := testbed.Listening(t)
	h := holder.Start(t, holding{TTL: time.Hour, URL: b.Srv.URL()})
	killed(t, h, 3, func(_ int, cfg flight.Config) *flight.Flight { return b.Flight(t, cfg) })
}

// killed waits until a process holds the claim, kills it while ten callers wait in each of n flights, and checks that one of them took
// over, and all have its result. It returns one of the flights.
func killed(t *testing.T, h *crash.Process, n int, open func(i int, cfg flight.Config) *flight.Flight) (f *flight.Flight) {
	t.Helper()
	h.Await("^holds$")
	var all sync.WaitGroup
	var runs, took atomic.Int64
	waiting := make(chan struct{}, 10*n)
	for i := range n {
		f = open(i, flight.Config{Observe: func(_ context.Context, e flight.Event) {
			if e.Kind == flight.EventWaiting {
				waiting <- struct{}{}
			}
		}})
		for range 10 {
			all.Go(func() {
				r, err := f.Do(testbed.Within(t), "k", func(context.Context) ([]byte, error) {
					took.Store(time.Now().UnixNano())
					runs.Add(1)
					return []byte("ours"), nil
				}, flight.DoOptions{})
				check.That(t, err == nil && string(r.Value) == "ours", "got %+v, %v", r, err)
			})
		}
	}
	for range cap(waiting) {
		testbed.Await(t, waiting, "all wait")
	}
	check.Require(t, runs.Load() == 0, "computed %d times while it was held", runs.Load())
	start := time.Now()
	h.Kill()
	all.Wait()
	check.Equal(t, runs.Load(), 1, "computed")
	t.Logf("taken over %s after kill -9", time.Unix(0, took.Load()).Sub(start))
	return f
}

// A process that is stopped for longer than its TTL wakes up without a claim: its context ends at once, and its
// result is refused.
func TestHolderIsStoppedPastItsTTL(t *testing.T) {
	t.Parallel()
	b := testbed.Listening(t)
	h := holder.Start(t, holding{TTL: time.Second, URL: b.Srv.URL()})
	h.Await("^holds$")
	h.Pause()
	f := b.Flight(t, flight.Config{})
	wantDo(t, f, func(context.Context) ([]byte, error) { return []byte("ours"), nil }, flight.DoOptions{}, "ours", flight.Computed)
	h.Continue()
	check.Equal(t, h.Line(), "ended lost: true, completed lost: true", "the holder printed")
	wantEntry(t, f, "k", flight.Done, "ours")
}

// The permissions in README.md are enough for values in the Object Store, to write and to read them.
func TestPermissionsForObjects(t *testing.T) {
	t.Parallel()
	f, b := documented(t, largeValues, "$JS.API.STREAM.INFO.OBJ_attic", "$JS.API.DIRECT.GET.OBJ_attic", "$JS.API.STREAM.MSG.GET.OBJ_attic", "$O.attic.>")
	value := noise(2 << 20)
	completeBytes(t, testbed.Begin(t, f, "k", flight.BeginOptions{}), value)
	readEveryWay(t, f, "k", value)
	put(t, b, "torn", `"value":{"size":10,"object":{"bucket":"attic","name":"c-1-n","size":10,"digest":"SHA-256=x"}}`, nil)
	wantEntry(t, f, "torn", flight.Absent, "")
}

// hosts is a dialer to servers by their names.
type hosts map[string]*natsrun.Server

// Dial implements nats.CustomDialer.
func (h hosts) Dial(_, address string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return h[name].InProcessConn()
}

// The servers of waiter and owner know nothing of each other, as where the route between them is cut: every probe is refused. The
// owner's own server decides whether it is dead, if it can be reached and was not restarted.
func TestOwnerIsAskedForAtItsServer(t *testing.T) {
	const ttl = 20 * time.Second
	for name, tt := range map[string]struct {
		after       func(t *testing.T, there *natsrun.Server, owner *natstest.Proxy)
		least, most time.Duration
	}{
		"it lives": {func(*testing.T, *natsrun.Server, *natstest.Proxy) {}, ttl - 2*time.Second, ttl},
		"it died":  {func(_ *testing.T, _ *natsrun.Server, owner *natstest.Proxy) { owner.Cut() }, 0, 1500 * time.Millisecond},
		"it lives, and loses its connection for a moment, often": {func(_ *testing.T, _ *natsrun.Server, owner *natstest.Proxy) {
			for range 25 {
				owner.Cut()
				owner.Heal()
				natstest.Pass(700 * time.Millisecond) // it is connected again after a tenth of a second
			}
		}, ttl - 2*time.Second, ttl},
		"it may live, but its server does not": {func(_ *testing.T, there *natsrun.Server, _ *natstest.Proxy) { there.Stop() }, 4 * time.Second, 6 * time.Second},
		"it may live, and its server restarted": {func(t *testing.T, there *natsrun.Server, _ *natstest.Proxy) {
			t.Helper()
			check.OK(t, there.Restart(t.Context()))
		}, 4 * time.Second, 6 * time.Second},
	} {
		testbed.RunInBubble(t, name, func(t *testing.T, b *testbed.Bed) {
			there := testbed.On(t, natstest.Server(t), kvlock.BucketConfig{Bucket: testbed.Bucket})
			owner := natstest.NewProxy(t, there.Srv)
			f := there.Flight(t, flight.Config{}, owner.Through(), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0))
			testbed.Begin(t, f, "k", flight.BeginOptions{TTL: ttl})
			claim := there.Present(t, "k")
			check.OK(t, check.Err(b.JS.PublishMsg(t.Context(), &nats.Msg{Subject: claim.Subject, Header: claim.Header, Data: claim.Data})))

			nc, err := nats.Connect("here,there", nats.SetCustomDialer(hosts{"here": b.Srv, "there": there.Srv}), nats.SkipHostLookup(), nats.DontRandomize())
			check.OK(t, err)
			t.Cleanup(nc.Close)
			js := check.Must(jetstream.New(nc))(t)
			takesOver(t, testbed.FlightOn(t, js, flight.Config{}), tt.least, tt.most, func() { tt.after(t, there.Srv, owner) })
		})
	}
}

// An owner's process is killed with -9 on each server of a cluster in turn, while others wait on the other two: one of them takes
// over.
func TestOwnerOnAnotherServerIsKilled(t *testing.T) {
	t.Parallel()
	cluster := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, cluster.URLs())
	check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: testbed.Bucket, Replicas: 3}))
	urls := strings.Split(cluster.URLs(), ",")
	for i, url := range urls {
		h := holder.Start(t, holding{TTL: time.Hour, URL: url})
		f := killed(t, h, len(urls)-1, func(next int, cfg flight.Config) *flight.Flight {
			from := (i + 1 + next) % len(urls)
			_, js := natstest.ConnectURL(t, strings.Join(slices.Concat(urls[from:], urls[:from]), ","), nats.DontRandomize())
			return testbed.FlightOn(t, js, cfg)
		})
		check.OK(t, f.Invalidate(t.Context(), "k"))
	}
}

// The connection is cut in one of several ways, at any moment between two renewals. The holder's context ends before
// another process can have the key.
func TestNeverTwoHoldersWhenCutOff(t *testing.T) {
	cuts := map[string]func(p *natstest.Proxy){
		"silence":      (*natstest.Proxy).Partition,
		"disconnected": (*natstest.Proxy).Cut,
		"one way: requests are lost": func(p *natstest.Proxy) {
			p.Filter(natstest.Losing(func(f natstest.Frame) bool { return f.FromClient }))
		},
		"one way: answers are lost": func(p *natstest.Proxy) {
			p.Filter(natstest.Losing(func(f natstest.Frame) bool { return !f.FromClient }))
		},
	}
	for name, cut := range cuts {
		for _, ttl := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} {
			if testing.Short() && ttl > time.Second {
				continue
			}
			testbed.RunInBubble(t, name+"/"+ttl.String(), func(t *testing.T, b *testbed.Bed) { cutOff(t, b, ttl, 0, cut) })
		}
	}
}

// An answer that comes late does not prolong the claim: it counts from when the request was sent.
func TestNeverTwoHoldersWhenAnswersAreSlow(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		cutOff(t, b, 5*time.Second, 900*time.Millisecond, (*natstest.Proxy).Partition)
	})
}

// So does the claim that was never renewed.
func TestASlowAnswerDoesNotProlongAClaim(t *testing.T) {
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) {
		f, p := b.ProxiedFlight(t, flight.Config{ClaimTTL: 3 * time.Second})
		p.Slow(900 * time.Millisecond)
		c := testbed.Begin(t, f, "k", flight.BeginOptions{})
		p.Partition()
		held, stop := c.AutoRenew(t.Context(), 0)
		defer stop()
		gone := b.Last(t, "k").Time.Add(3 * time.Second)
		<-held.Done()
		check.That(t, time.Now().Before(gone), "held until %s: the claim was over at %s", time.Now(), gone)
	})
}

// cutOff cuts the connection of a holder, and compares when its context ends with when another process gets the claim.
func cutOff(t *testing.T, b *testbed.Bed, ttl, slow time.Duration, cut func(*natstest.Proxy)) {
	t.Helper()
	f, p := b.ProxiedFlight(t, flight.Config{ClaimTTL: ttl})
	p.Slow(slow)
	c := testbed.Begin(t, f, "k", flight.BeginOptions{})
	held, stop := c.AutoRenew(t.Context(), 0)
	defer stop()
	natstest.Pass(3*ttl + rand.N(ttl))
	cut(p)
	start := time.Now()
	other := b.Flight(t, flight.Config{})
	took := make(chan time.Time, 1)
	go func() {
		for {
			_, err := other.Begin(t.Context(), "k", flight.BeginOptions{})
			if err == nil {
				took <- time.Now()
				return
			}
			pause := 100 * time.Millisecond
			// The holder's context ends in the last second of the TTL.
			if taken, ok := errors.AsType[*flight.TakenError](err); !ok || taken.Entry.TTL-taken.Entry.Age() < 2*time.Second {
				pause = 5 * time.Millisecond
			}
			natstest.Pass(pause)
		}
	}()
	<-held.Done()
	ended := time.Now()
	check.ErrorIs(t, context.Cause(held), kvlock.ErrLost)
	second := <-took
	check.That(t, ended.Before(second), "held until %s after the cut, the second holder came after %s", ended.Sub(start), second.Sub(start))
	check.That(t, check.Err(c.Complete(t.Context(), nil, 0)) != nil, "completed a claim that another process holds")
}
