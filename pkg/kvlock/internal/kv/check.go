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

	"github.com/expediter-io/expediter/internal/retry"
)

const (
	// checkEvery is the time between two questions to the leader.
	checkEvery = time.Second

	// checkGrace is the time for which the last pushes may arrive after the leader's answer.
	checkGrace = 250 * time.Millisecond
)

// leaderCheck is the part of a hub that asks the stream's leader every checkEvery for the number of the last change. The mirror needs that
// number, and so does the hub when it has many keys to poll: they then know that no push is missing.
type leaderCheck struct {
	started bool          // guarded by the hub's mu
	done    chan struct{} // closed when runChecks has ended
	wake    chan struct{}

	mu   sync.Mutex
	gone bool      // the stream did not exist at the last question
	made time.Time // the time at which the stream was created, by the last answer; zero before the first
}

// startChecks starts runChecks, once. The caller holds mu.
func (h *Hub) startChecks() {
	if h.checks.started || h.store.Closing.Err() != nil {
		return
	}
	h.checks.started = true
	go h.runChecks(h.store.Conn.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING))
}

// runChecks asks the leader every checkEvery, until the store closes.
func (h *Hub) runChecks(status chan nats.Status) {
	defer close(h.checks.done)
	defer h.store.Conn.RemoveStatusListener(status)
	timer := time.NewTimer(checkEvery)
	defer timer.Stop()
	for {
		select {
		case <-h.store.Closing.Done():
			return
		case now := <-status:
			if now != nats.CONNECTED {
				if h.mirror != nil {
					h.mirror.Suspend()
				}
				h.suspend()
				continue
			}
		case <-h.checks.wake:
		case <-timer.C:
		}
		if h.mirror != nil || h.isBusy() {
			if err := h.check(h.store.Closing); err != nil {
				h.suspend()
				h.store.Log.Debug("kvlock: pushes are not confirmed, asking again", "error", err)
			}
		}
		timer.Reset(checkEvery)
	}
}

// checkSoon makes runChecks ask the leader at once.
func (h *Hub) checkSoon() {
	select {
	case h.checks.wake <- struct{}{}:
	default:
	}
}

// check asks the leader for the number of the last change. If all changes up to that number were pushed, the known values were current
// when the question was sent, or when the server that answered was last known to be the leader. Changes that are not pushed within
// checkGrace are lost.
func (h *Hub) check(ctx context.Context) error {
	h.checks.mu.Lock()
	defer h.checks.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(SendTimeout, h.store.OpTimeout))
	defer cancel()
	applied, sent, reconnects := h.pushedUpTo(), time.Now(), h.store.Conn.Stats().Reconnects
	stream, err := h.store.JS.Stream(ctx, h.store.Stream)
	answered := time.Now()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		h.checks.gone = true // it may come back with less
	}
	var led time.Duration
	if err == nil {
		led, err = leads(stream.CachedInfo().Cluster)
	}
	if err != nil {
		return fmt.Errorf("kvlock: ask for the last change of bucket %q: %w: %w", h.store.Bucket, ErrUnavailable, err)
	}
	info := stream.CachedInfo()
	h.store.answered(info, sent, reconnects)
	if err := h.follow(ctx, info, applied); err != nil {
		return err
	}
	h.store.Clock.asked(sent, answered, info.TimeStamp)
	h.extend(sent.Add(-led))
	return nil
}

// follow applies the answer of the leader. After it, no known value is older than the answer. All changes up to applied had been pushed
// when the question was sent.
func (h *Hub) follow(ctx context.Context, info *jetstream.StreamInfo, applied uint64) error {
	last, first := info.State.LastSeq, h.checks.made.IsZero()
	anew := h.checks.gone || !first && !info.Created.Equal(h.checks.made) || last < applied // the stream is another one, or was restored
	h.checks.gone, h.checks.made = false, info.Created
	switch {
	case anew:
		h.reset(last)
	case first:
		h.skip(last)
	default:
		return h.await(ctx, last)
	}
	return nil
}

// await waits a while until all changes up to last have been pushed.
func (h *Hub) await(ctx context.Context, last uint64) error {
	before := h.pushedUpTo()
	if before >= last {
		return nil
	}
	if !retry.Jitter(ctx, checkGrace) {
		return context.Cause(ctx)
	}
	switch now := h.pushedUpTo(); {
	case now >= last:
	case now > before: // they are late; the next push would show a lost one before it
		return errors.New("pushes come late")
	default:
		h.store.Log.WarnContext(ctx, "kvlock: changes of the bucket were not pushed, nothing that is known is believed")
		h.skip(last)
	}
	return nil
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

var errNotLeader = errors.New("the server that answered may not be the leader")
