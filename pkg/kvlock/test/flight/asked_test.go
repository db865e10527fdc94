package flight_test

import (
	"context"
	"net"
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
	"github.com/expediter-io/expediter/pkg/kvlock/test/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
				pass(700 * time.Millisecond) // it is connected again after a tenth of a second
			}
		}, ttl - 2*time.Second, ttl},
		"it may live, but its server does not": {func(_ *testing.T, there *natsrun.Server, _ *natstest.Proxy) { there.Stop() }, 4 * time.Second, 6 * time.Second},
		"it may live, and its server restarted": {func(t *testing.T, there *natsrun.Server, _ *natstest.Proxy) {
			t.Helper()
			check.OK(t, there.Restart(t.Context()))
		}, 4 * time.Second, 6 * time.Second},
	} {
		runInBubble(t, name, func(t *testing.T, b *bed) {
			there := bedOn(t, natstest.Server(t), kvlock.BucketConfig{Bucket: bucket})
			owner := natstest.NewProxy(t, there.Srv)
			f := there.Flight(t, flight.Config{}, owner.Through(), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0))
			begin(t, f, "k", flight.BeginOptions{TTL: ttl})
			claim := there.Present(t, "k")
			check.OK(t, check.Err(b.JS.PublishMsg(t.Context(), &nats.Msg{Subject: claim.Subject, Header: claim.Header, Data: claim.Data})))

			nc, err := nats.Connect("here,there", nats.SetCustomDialer(hosts{"here": b.Srv, "there": there.Srv}), nats.SkipHostLookup(), nats.DontRandomize())
			check.OK(t, err)
			t.Cleanup(nc.Close)
			js := check.Must(jetstream.New(nc))(t)
			took := takesOver(t, flightOn(t, js, flight.Config{}), func() { tt.after(t, there.Srv, owner) })
			check.That(t, took >= tt.least && took <= tt.most, "taken over after %s", took)
		})
	}
}

// An owner's process is killed with -9 on each server of a cluster in turn, while others wait on the other two: one of them takes
// over.
func TestOwnerOnAnotherServerIsKilled(t *testing.T) {
	t.Parallel()
	cluster := natstest.Cluster(t, 3, natstest.Processes)
	_, js := natstest.ConnectURL(t, cluster.URLs())
	check.OK(t, kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: bucket, Replicas: 3}))
	urls := strings.Split(cluster.URLs(), ",")
	for i, url := range urls {
		h := holder.Start(t, testbed.Client{TTL: time.Hour, URL: url})
		h.Await("^holds$")
		var all sync.WaitGroup
		var runs atomic.Int64
		var took atomic.Int64
		waiting := make(chan struct{}, 2)
		var f *flight.Flight
		for next := 1; next < len(urls); next++ {
			from := (i + next) % len(urls)
			_, js := natstest.ConnectURL(t, strings.Join(slices.Concat(urls[from:], urls[:from]), ","), nats.DontRandomize())
			f = flightOn(t, js, flight.Config{Observe: func(_ context.Context, e flight.Event) {
				if e.Kind == flight.EventWaiting {
					waiting <- struct{}{}
				}
			}})
			all.Go(func() {
				r, err := f.Do(within(t), "k", func(context.Context) ([]byte, error) {
					took.Store(time.Now().UnixNano())
					runs.Add(1)
					return []byte("ours"), nil
				}, flight.DoOptions{})
				check.That(t, err == nil && string(r.Value) == "ours", "got %+v, %v", r, err)
			})
		}
		for range cap(waiting) {
			testbed.Await(t, waiting, "all wait")
		}
		start := time.Now()
		h.Kill()
		all.Wait()
		check.Same(t, "computed", runs.Load(), 1)
		t.Logf("taken over %s after kill -9", time.Unix(0, took.Load()).Sub(start))
		check.OK(t, f.Invalidate(t.Context(), "k"))
	}
}
