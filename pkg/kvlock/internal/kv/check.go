package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
)

const (
	// checkEvery is the time between two questions to the leader.
	checkEvery = time.Second

	// checkGrace is the time for which the last pushes may arrive after the leader's answer.
	checkGrace = 250 * time.Millisecond
)

// leaderCheck asks the stream's leader every checkEvery for the number of the last change. The mirror needs that number, and so does the
// hub when it has many keys to poll: they then know that no push is missing.
type leaderCheck struct {
	store *Store
	done  chan struct{} // closed when run has ended
	wake  chan struct{}

	started bool // guarded by the hub's mu

	mu   sync.Mutex
	gone bool      // the stream did not exist at the last question
	made time.Time // the time at which the stream was created, by the last answer; zero before the first
}

func newLeaderCheck(s *Store) *leaderCheck {
	return &leaderCheck{store: s, done: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// start starts run, once. The caller holds the hub's mu.
func (c *leaderCheck) start() {
	if c.started || c.store.Closing.Err() != nil {
		return
	}
	c.started = true
	go c.run(c.store.Conn.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING))
}

// run asks the leader every checkEvery, until the store closes.
func (c *leaderCheck) run(status chan nats.Status) {
	defer close(c.done)
	defer c.store.Conn.RemoveStatusListener(status)
	timer := time.NewTimer(checkEvery)
	defer timer.Stop()
	hub := c.store.Hub
	for {
		select {
		case <-c.store.Closing.Done():
			return
		case now := <-status:
			if now != nats.CONNECTED {
				if hub.mirror != nil {
					hub.mirror.Suspend()
				}
				hub.suspend()
				continue
			}
		case <-c.wake:
		case <-timer.C:
		}
		if hub.mirror != nil || hub.isBusy() {
			if err := c.check(c.store.Closing); err != nil {
				hub.suspend()
				c.store.Log.Debug("kvlock: pushes are not confirmed, asking again", "error", err)
			}
		}
		timer.Reset(checkEvery)
	}
}

// soon makes run ask the leader at once.
func (c *leaderCheck) soon() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// check asks the leader for the number of the last change. If all changes up to that number were pushed, the known values were current
// when the question was sent, or when the server that answered was last known to be the leader. Changes that are not pushed within
// checkGrace are lost.
func (c *leaderCheck) check(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(SendTimeout, c.store.OpTimeout))
	defer cancel()
	hub := c.store.Hub
	applied, sent, reconnects := hub.pushedUpTo(), time.Now(), c.store.Conn.Stats().Reconnects
	stream, err := c.store.JS.Stream(ctx, c.store.Stream)
	answered := time.Now()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		c.gone = true // it may come back with less
	}
	if err != nil {
		return fmt.Errorf("kvlock: ask for the last change of bucket %q: %w: %w", c.store.Bucket, ErrUnavailable, err)
	}
	info := stream.CachedInfo()
	led, err := leads(info.Cluster)
	if err != nil {
		return fmt.Errorf("kvlock: ask for the last change of bucket %q: %w: %w", c.store.Bucket, ErrUnavailable, err)
	}
	c.store.answered(info, sent, reconnects)
	if err := c.follow(ctx, info, applied); err != nil {
		return err
	}
	c.store.Clock.asked(sent, answered, info.TimeStamp)
	hub.extend(sent.Add(-led))
	return nil
}

// follow applies the answer of the leader. After it, no known value is older than the answer. All changes up to applied had been pushed
// when the question was sent.
func (c *leaderCheck) follow(ctx context.Context, info *jetstream.StreamInfo, applied uint64) error {
	last, first := info.State.LastSeq, c.made.IsZero()
	anew := c.gone || !first && !info.Created.Equal(c.made) || last < applied // the stream is another one, or was restored
	c.gone, c.made = false, info.Created
	switch {
	case anew:
		c.store.Hub.reset(last)
	case first:
		c.store.Hub.skip(last)
	default:
		return c.await(ctx, last)
	}
	return nil
}

// await waits a while until all changes up to last have been pushed.
func (c *leaderCheck) await(ctx context.Context, last uint64) error {
	before := c.store.Hub.pushedUpTo()
	if before >= last {
		return nil
	}
	if !backoff.Pause(ctx, checkGrace) {
		return context.Cause(ctx)
	}
	switch now := c.store.Hub.pushedUpTo(); {
	case now >= last:
	case now > before: // they are late; the next push would show a lost one before it
		return errBehind
	default:
		c.store.Log.WarnContext(ctx, "kvlock: changes of the bucket were not pushed, nothing that is known is believed")
		c.store.Hub.skip(last)
	}
	return nil
}

// close waits until run has ended. The store is closing.
func (c *leaderCheck) close() {
	c.store.Hub.mu.Lock()
	started := c.started
	c.store.Hub.mu.Unlock()
	if started {
		<-c.done
	}
}

// leads returns the time since the server that answered was certainly the leader. While there is no leader, any server with a replica of
// the stream answers. A leader that is cut off does not learn for a long time that another was elected: it was certainly the leader when
// it last had contact with a majority.
func leads(c *jetstream.ClusterInfo) (ago time.Duration, err error) {
	if c == nil || len(c.Replicas) == 0 { // there is but one
		return 0, nil
	}
	var heard []time.Duration
	for _, r := range c.Replicas { // all replicas but the server that answers
		if r.Name == c.Leader {
			return 0, errNotLeader
		}
		if r.Active > 0 { // 0 for never
			heard = append(heard, r.Active)
		}
	}
	others := (len(c.Replicas) + 1) / 2
	if c.Leader == "" || len(heard) < others {
		return 0, errNotLeader
	}
	slices.Sort(heard)
	return heard[others-1], nil
}

var (
	errBehind    = errors.New("pushes come late")
	errNotLeader = errors.New("the server that answered may not be the leader")
)
