package natsrun

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/retry"
)

const (
	firstTry     = time.Second      // the time without an answer after which the request is repeated
	lastTry      = 16 * time.Second // each try gets twice as long, up to this time
	maxReplicas  = 5                // the server's own bound
	pollInterval = 20 * time.Millisecond

	// streamInfo is the path of a monitor under which every stream of every account has its leader.
	streamInfo = "/jsz?accounts=true&streams=true&limit=10000"
)

// WaitReady returns when the cluster is ready. Then the running nodes are connected and agree on a meta leader, the nodes and the replicas
// of every stream have caught up, and every consumer has its replicas. A stream can be created on all nodes (WaitReady creates one and
// deletes it). With nodes down it waits for the others; a cluster without a quorum never becomes ready. The cluster stays ready until the
// next election.
//
// It asks every 20 ms until ctx ends, or for ReadyTimeout if ctx has no deadline; then it returns ErrNotReady with the
// missing condition.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if err := c.poll(ctx, c.checkCurrent); err != nil {
		return err
	}
	name := "natsrun-ready-" + rand.Text()
	return c.pollPatiently(ctx, func(ctx context.Context) error { return c.checkCreate(ctx, name) })
}

// bounded gives ctx a deadline if it has none.
func (c *Cluster) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.cfg.ReadyTimeout)
}

// poll asks until check returns nil.
func (c *Cluster) poll(ctx context.Context, check func(context.Context) error) error {
	var err error
	for {
		reason := check(ctx)
		if reason == nil {
			return nil
		}
		// An error because ctx ended does not describe the cluster.
		if err == nil || ctx.Err() == nil {
			err = reason
		}
		if !retry.Sleep(ctx, pollInterval) {
			return fmt.Errorf("%w: %w: waiting because %w", ErrNotReady, ctx.Err(), err)
		}
	}
}

// pollPatiently is poll for checks that may get no answer at all: after a check that ran out of time, the next gets twice as much.
func (c *Cluster) pollPatiently(ctx context.Context, check func(context.Context) error) error {
	patience := firstTry
	return c.poll(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		err := check(ctx)
		if ctx.Err() != nil {
			patience = min(2*patience, lastTry)
		}
		return err
	})
}

// checkCurrent returns nil when the running nodes are connected, and each reports that it is in touch with the meta leader and that its
// replicas and consumers have caught up. It waits for all answers, for a paused node until ctx ends.
func (c *Cluster) checkCurrent(ctx context.Context) error {
	return c.each(func(n *Node) error {
		if !n.Running() {
			return nil
		}
		health := new(server.HealthStatus)
		routes, err := ask[server.Routez](ctx, n, "/routez")
		if err == nil {
			err = c.checkRoutes(n, routes)
		}
		if err == nil {
			health, err = ask[server.HealthStatus](ctx, n, "/healthz")
		}
		if err == nil && health.Status != "ok" {
			err = errors.New(health.Error)
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		return nil
	})
}

// checkCreate returns nil when a stream can be placed on every running node: a new leader knows its peers a moment
// before it knows their free space. A repeated check finds the stream of an earlier one whose answer was lost.
func (c *Cluster) checkCreate(ctx context.Context, name string) error {
	return c.withClient(ctx, func(nc *nats.Conn) error {
		js, err := jetstream.New(nc)
		if err != nil {
			return fmt.Errorf("natsrun: %w", err)
		}
		replicas := 0
		for _, n := range c.Nodes {
			if n.Running() && replicas < maxReplicas {
				replicas++
			}
		}
		name := fmt.Sprintf("%s-%d", name, replicas)
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name}, Replicas: replicas, MaxBytes: 1, // an account may require a bound
		})
		if err != nil {
			return fmt.Errorf("create a stream with %d replicas: %w", replicas, err)
		}
		return js.DeleteStream(ctx, name)
	})
}

// withClient runs f with a client that is closed afterwards. Connecting to one node may take as long as ctx, which has
// a deadline.
func (c *Cluster) withClient(ctx context.Context, f func(*nats.Conn) error) error {
	nc, err := c.Connect(slices.Concat(c.cfg.ClientOptions, []nats.Option{nats.Timeout(timeLeft(ctx))})...)
	if err != nil {
		return err
	}
	defer nc.Close()
	return f(nc)
}

// timeLeft returns the time until the deadline of ctx, which must have one.
func timeLeft(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return time.Until(deadline)
}

// routesPerPeer is the number of connections of a node to each other node: a pool, and one for the system account.
const routesPerPeer = server.DEFAULT_ROUTE_POOL_SIZE + 1

// checkRoutes returns nil when a node has all its connections to each other running node. Two nodes that connect to each other at once may
// each close the connection that the other keeps. A second later they connect again, and do not know each other's free space until the
// next report.
func (c *Cluster) checkRoutes(n *Node, routes *server.Routez) error {
	counts := map[string]int{}
	for _, r := range routes.Routes {
		counts[r.RemoteName]++
	}
	for _, peer := range c.Nodes {
		if has := counts[peer.Name]; peer != n && peer.Running() && has < routesPerPeer {
			return fmt.Errorf("%d of %d connections to %s", has, routesPerPeer, peer.Name)
		}
	}
	return nil
}

// details returns the streams of which a node has a replica, by name.
func details(info *server.JSInfo) map[string]*server.StreamDetail {
	streams := make(map[string]*server.StreamDetail)
	for _, account := range info.AccountDetails {
		for i := range account.Streams {
			streams[account.Streams[i].Name] = &account.Streams[i]
		}
	}
	return streams
}
