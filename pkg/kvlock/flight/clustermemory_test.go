package flight_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
)

// three is three servers with a bucket that all of them keep.
type three struct {
	cluster *natsrun.Cluster
	js      jetstream.JetStream
}

func setupThree(t *testing.T) three {
	t.Helper()
	c := three{cluster: natstest.Cluster(t, 3)}
	_, c.js = natstest.ConnectURL(t, c.cluster.URLs())
	check.OK(t, kvlock.CreateBucket(t.Context(), c.js, kvlock.BucketConfig{Bucket: testbed.Bucket, Replicas: 3}))
	return c
}

// each is a Flight at each of the servers, which stays with it when it goes and comes back.
func (c three) each(t *testing.T, cfg flight.Config) []*flight.Flight {
	t.Helper()
	var flights []*flight.Flight
	for _, n := range c.cluster.Nodes {
		_, js := natstest.ConnectURL(t, n.URL, nats.IgnoreDiscoveredServers())
		flights = append(flights, testbed.FlightOn(t, js, cfg))
	}
	return flights
}

func (c three) leader(t *testing.T, stream string) *natsrun.Node {
	t.Helper()
	return check.Must(c.cluster.StreamLeader(testbed.Within(t), stream))(t)
}

// back starts a killed server again, and waits until it has caught up with the others.
func (c three) back(t *testing.T, n *natsrun.Node) {
	t.Helper()
	check.OK(t, errors.Join(n.Start(testbed.Within(t)), c.cluster.WaitReady(testbed.Within(t))))
}

// A server that is cut off from the others answers for a bucket, as its leader or because it knows of none, while the
// others may write to it. A process that is connected to it gets nothing from memory after the bound.
func TestMemoryWithoutAMajority(t *testing.T) {
	t.Parallel()
	c := setupThree(t)
	cfg := remembering()
	flights := c.each(t, cfg)
	replace(t, flights[0], "k", "v")
	for _, leads := range []bool{true, false} {
		leader, alone := c.leader(t, "KV_"+testbed.Bucket), -1
		for i, n := range c.cluster.Nodes {
			if (n == leader) == leads {
				alone = i
			}
		}
		f := flights[alone]
		hits := func() bool {
			before := f.Stats().Memory.Hits
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, _ = f.Get(ctx, "k") // memory answers, or no server does
			return f.Stats().Memory.Hits > before
		}
		check.Until(t, time.Minute, "it is in memory", hits)
		for i, n := range c.cluster.Nodes {
			if i != alone {
				check.OK(t, n.Pause())
			}
		}
		paused := time.Now()
		<-time.After(memoryBound + time.Second/2) // messages sent by then may be received later
		for time.Since(paused) < 2*memoryBound {
			start := time.Now()
			if hits() {
				t.Errorf("leader %t: it is read from memory %s after anybody could vouch for it", leads, start.Sub(paused))
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		for i, n := range c.cluster.Nodes {
			if i != alone {
				check.OK(t, n.Continue())
			}
		}
		check.OK(t, c.cluster.WaitReady(testbed.Within(t)))
		check.Until(t, time.Minute, "it is in memory again", hits)
	}
}

// The objects of large values are there when the leader is killed that stored them, and others are stored without it. No
// reader takes a replica that lags behind for a value that is gone.
func TestLargeValuesOnThreeServers(t *testing.T) {
	t.Parallel()
	c := setupThree(t)
	check.OK(t, flight.CreateLargeValueBucket(t.Context(), c.js, kvlock.BucketConfig{Bucket: attic, Replicas: 3}))
	var log testbed.Logged
	flights := c.each(t, flight.Config{Logger: log.Logger(), LargeValueBucket: attic, OpTimeout: 20 * time.Second})
	values := map[string][]byte{}
	store := func(f *flight.Flight, key string, size int) {
		values[key] = noise(size)
		completeBytes(t, testbed.Begin(t, f, key, flight.BeginOptions{TTL: time.Minute}), values[key])
	}
	for i := range 3 {
		store(flights[i], fmt.Sprint("before.", i), 2<<20+i)
	}
	leader := c.leader(t, "OBJ_"+attic)
	check.OK(t, leader.Kill())
	for i, f := range flights {
		if c.cluster.Nodes[i] != leader {
			store(f, fmt.Sprint("after.", i), 3<<20+i)
		}
	}
	read := func(f *flight.Flight) {
		for key, value := range values {
			check.Until(t, time.Minute, key, func() bool {
				s, err := f.Get(t.Context(), key)
				check.Require(t, err != nil || s.State != flight.Done || bytes.Equal(s.Value, value),
					"%s has %d bytes, want %d others", key, len(s.Value), len(value))
				return err == nil && s.State == flight.Done
			})
		}
	}
	for i, f := range flights {
		if c.cluster.Nodes[i] != leader {
			read(f)
		}
	}
	c.back(t, leader)
	for _, f := range flights {
		for range 5 { // whichever replica answers
			read(f)
		}
	}
	n := log.Count("corrupt record")
	check.That(t, n == 0, "%d records were taken for corrupt:\n%s", n, log.String())
}
