package natsrun

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/pause"
)

const (
	firstTry     = time.Second      // the time without an answer after which the request is repeated
	lastTry      = 16 * time.Second // each try gets twice as long, up to this time
	maxReplicas  = 5                // the server's own bound
	pollInterval = 20 * time.Millisecond

	// streamInfo is the path of a monitor under which every stream and consumer of every account has its leader.
	streamInfo = "/jsz?accounts=true&streams=true&consumers=true&limit=10000"
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
		if !pause.For(ctx, pollInterval) {
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

// checkCurrent returns nil when the running nodes agree and have caught up.
func (c *Cluster) checkCurrent(ctx context.Context) error {
	routes, err := view[server.Routez](ctx, c, "/routez")
	if err != nil {
		return err
	}
	if err := checkRoutes(routes); err != nil {
		return err
	}
	before, err := view[server.JSInfo](ctx, c, streamInfo)
	if err != nil {
		return err
	}
	if err := checkMeta(before); err != nil {
		return err
	}
	after, err := view[server.JSInfo](ctx, c, streamInfo)
	if err != nil {
		return err
	}
	return checkStreams(before, after)
}

// view asks every running node and waits for all answers, for a paused node until ctx ends. The error names the running nodes that do not
// answer.
func view[T any](ctx context.Context, c *Cluster, path string) (map[string]*T, error) {
	answers := make([]*T, len(c.Nodes))
	var wg sync.WaitGroup
	for i, n := range c.Nodes {
		wg.Go(func() {
			answers[i], _ = ask[T](ctx, n, path) // nil then
		})
	}
	wg.Wait()
	all := make(map[string]*T, len(answers))
	var silent []string
	for i, n := range c.Nodes {
		if answers[i] != nil {
			all[n.Name] = answers[i]
		} else if n.Running() {
			silent = append(silent, n.Name)
		}
	}
	if len(silent) > 0 {
		return nil, fmt.Errorf("no answer from %s", strings.Join(silent, ", "))
	}
	return all, nil
}

// checkCreate returns nil when a stream can be placed on every running node: a new leader knows its peers a moment
// before it knows their free space. A repeated check finds the stream of an earlier one whose answer was lost.
func (c *Cluster) checkCreate(ctx context.Context, name string) error {
	return c.withClient(ctx, func(nc *nats.Conn) error {
		js, err := jetstream.New(nc)
		if err != nil {
			return fmt.Errorf("natsrun: %w", err)
		}
		replicas := min(c.running(), maxReplicas)
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

func (c *Cluster) running() int {
	running := 0
	for _, n := range c.Nodes {
		if n.Running() {
			running++
		}
	}
	return running
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

// checkRoutes returns nil when each node has all its connections to each other node. Two nodes that connect to each other at once may each
// close the connection that the other keeps. A second later they connect again, and do not know each other's free space until the next
// report.
func checkRoutes(view map[string]*server.Routez) error {
	for name, routes := range view {
		for peer := range view {
			n := 0
			for _, r := range routes.Routes {
				if r.RemoteName == peer {
					n++
				}
			}
			if peer != name && n < routesPerPeer {
				return fmt.Errorf("node %s has %d of %d connections to %s", name, n, routesPerPeer, peer)
			}
		}
	}
	return nil
}

// checkMeta returns nil when all nodes agree on a leader that reports all of them as current.
func checkMeta(view map[string]*server.JSInfo) error {
	var leader string
	for name, info := range view {
		if info.Meta == nil || info.Meta.Leader == "" {
			return fmt.Errorf("node %s knows no meta leader", name)
		}
		if leader == "" {
			leader = info.Meta.Leader
		}
		if info.Meta.Leader != leader {
			return fmt.Errorf("meta leader is %s or %s", leader, info.Meta.Leader)
		}
	}
	lead := view[leader]
	if lead == nil {
		return fmt.Errorf("meta leader %q does not run", leader)
	}
	current := map[string]bool{leader: true}
	for _, peer := range lead.Meta.Replicas {
		current[peer.Name] = peer.Current && !peer.Offline
	}
	for name := range view {
		if !current[name] {
			return fmt.Errorf("meta leader %s does not know %s as current", leader, name)
		}
	}
	return nil
}

// checkStreams returns nil when every stream has a leader and its replicas have, in after, at least the sequence that the leader had in
// before. It compares the sequences that the nodes report of themselves: right after a crash a leader still reports the lost replica as
// current.
func checkStreams(before, after map[string]*server.JSInfo) error {
	for name, info := range before {
		for stream, d := range details(info) {
			if d.Cluster == nil {
				continue
			}
			if d.Cluster.Leader == "" {
				return fmt.Errorf("%w: %s on %s", ErrNoLeader, stream, name)
			}
			if err := checkConsumers(name, d, after); err != nil {
				return err
			}
			if d.Cluster.Leader != name {
				continue
			}
			if err := checkReplicas(d, after); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkReplicas(leader *server.StreamDetail, after map[string]*server.JSInfo) error {
	for _, peer := range leader.Cluster.Replicas {
		info := after[peer.Name]
		if info == nil {
			continue // it is down
		}
		d := details(info)[leader.Name]
		if d == nil || d.State.LastSeq < leader.State.LastSeq {
			return fmt.Errorf("replica of %s on %s is behind", leader.Name, peer.Name)
		}
	}
	return nil
}

// checkConsumers returns nil when the stream's consumers on the node have a leader, and those that the node leads exist
// on their other nodes.
func checkConsumers(node string, stream *server.StreamDetail, after map[string]*server.JSInfo) error {
	for _, consumer := range stream.Consumer {
		if consumer.Cluster == nil {
			continue
		}
		if consumer.Cluster.Leader == "" {
			return fmt.Errorf("consumer %s of stream %s on %s has no leader", consumer.Name, stream.Name, node)
		}
		if consumer.Cluster.Leader != node {
			continue
		}
		for _, peer := range consumer.Cluster.Replicas {
			info := after[peer.Name]
			if info == nil {
				continue // it is down
			}
			d := details(info)[stream.Name]
			if d == nil || !slices.ContainsFunc(d.Consumer, func(c *server.ConsumerInfo) bool { return c.Name == consumer.Name }) {
				return fmt.Errorf("replica of consumer %s of %s on %s is missing", consumer.Name, stream.Name, peer.Name)
			}
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
