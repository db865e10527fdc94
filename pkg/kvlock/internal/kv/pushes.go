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
	// busyThreshold is the largest number of keys that are polled regularly; with more, the leader is asked instead.
	busyThreshold = 16

	// maxDefers is the largest number of times in a row that the read of a due key is deferred.
	maxDefers = 10
)

// Mirror keeps a copy of the bucket in the memory of this process. Pushes keep the copy current.
type Mirror interface {
	// Pushed applies a change of key that the bucket pushed.
	Pushed(key string, sequence uint64)

	// Changed applies a write of key by this process that was sent in an era, and that the server acknowledged.
	Changed(key string, revision, era uint64)

	// Extend records that no change from before then is missing.
	Extend(then time.Time)

	// Suspend records that changes may be missing until the next Extend.
	Suspend()

	// Skip forgets everything and starts over behind sequence, or behind the last change that was pushed.
	Skip(sequence uint64)

	// Reset begins the next era: it forgets everything and starts over behind sequence, whatever was pushed.
	Reset(sequence uint64)
}

// Feed makes the hub call m for all changes from now on, in their order. It asks the leader for the number of the last change. One round
// trip.
func (h *Hub) Feed(ctx context.Context, m Mirror) error {
	h.mu.Lock()
	h.mirror = m
	err := h.start()
	if err == nil {
		h.startChecks()
	}
	h.mu.Unlock()
	if err != nil {
		return err
	}
	return h.check(ctx)
}

// gapTracker records which changes the bucket has pushed. A stream numbers its changes without gaps, so the tracker sees a missing change.
// While none is missing, a read of a watched key would return the known value, if the key was read once as of a change since which it has
// been watched.
type gapTracker struct {
	applied uint64    // each change up to this one was pushed, or is at most floor
	floor   uint64    // a value known as of an earlier change than this one may be outdated
	begun   bool      // the tracker has a first number; without it, any push would show a gap
	reread  time.Time // the last time at which all keys became due because of missing changes
	trusted time.Time // the time until which no change that matters is missing
}

// track records a push, and reports whether its key is watched. It does both under one lock: a key that is watched later has missed this
// push. A sequence of 0 is unknown.
func (h *Hub) track(key string, sequence uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trackSequence(sequence)
	return h.keys[key] != nil
}

// trackSequence records the number of a change that was pushed. If earlier changes are missing, it makes all keys due, but not again for
// each of many gaps. The caller holds mu.
func (h *Hub) trackSequence(sequence uint64) {
	g := &h.gaps
	gap := g.begun && sequence > g.applied+1
	g.applied = max(g.applied, sequence)
	if !gap {
		return
	}
	g.floor, g.trusted = sequence, time.Time{}
	if now := time.Now(); now.Sub(g.reread) >= PollEvery {
		g.reread = now
		h.allDue()
	}
}

// pushedUpTo returns the number of the last change that was pushed.
func (h *Hub) pushedUpTo() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gaps.applied
}

// skip makes the mirror and the hub start over behind the change sequence, or behind the last push if that is later: pushes may have
// overtaken the answer with sequence, and do not come again.
func (h *Hub) skip(sequence uint64) {
	if h.mirror != nil {
		h.mirror.Skip(sequence)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beginBehind(max(sequence, h.gaps.applied))
}

// reset makes the mirror and the hub start over behind the change sequence of another stream, whose numbers are unrelated to the former.
func (h *Hub) reset(sequence uint64) {
	h.Era.Add(1)
	if h.mirror != nil {
		h.mirror.Reset(sequence)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beginBehind(sequence)
}

// beginBehind is the common part of skip and reset. The caller holds mu.
func (h *Hub) beginBehind(sequence uint64) {
	first := !h.gaps.begun
	h.gaps.applied, h.gaps.floor, h.gaps.begun = sequence, sequence, true
	if !first {
		h.forget()
		return
	}
	for _, k := range h.due { // they are being read, or become due again
		k.asOf = 0
	}
}

// restart makes all keys due, because the connection was down.
func (h *Hub) restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
}

// forget makes all keys due for reads that have not begun yet. The caller holds mu.
func (h *Hub) forget() {
	h.gaps.trusted = time.Time{}
	for _, k := range h.due {
		k.asOf, k.since = 0, h.reads+1
	}
	h.allDue()
}

// allDue makes all keys due. The caller holds mu.
func (h *Hub) allDue() {
	for _, k := range h.due {
		k.next = time.Time{}
	}
	h.wakePoller()
}

// extend records that no push from before then is missing.
func (h *Hub) extend(then time.Time) {
	if h.mirror != nil {
		h.mirror.Extend(then)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaps.trusted = then.Add(2 * PollEvery)
	h.lastHeard = time.Now()
}

// suspend makes the poller read keys when they are due, until extend is called.
func (h *Hub) suspend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaps.trusted = time.Time{}
}

// defers reports whether the regular read of k is not needed: its watchers have its value, and further changes are pushed. The caller
// holds mu.
func (h *Hub) defers(k *watched, now time.Time) bool {
	known := k.asOf > 0 && k.asOf >= max(k.floor, h.gaps.floor) && k.known && !k.expired(now.Add(batchWindow))
	if !known || !now.Before(h.gaps.trusted) || k.deferred >= maxDefers || k.resting() || !k.served(0) {
		k.deferred = 0
		return false
	}
	k.deferred++
	return true
}

// isBusy reports whether the leader is asked instead of many regular polls.
func (h *Hub) isBusy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.regular > busyThreshold
}

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
	remade := h.checks.gone || !first && !info.Created.Equal(h.checks.made) || last < applied // the stream is another one, or was restored
	h.checks.gone, h.checks.made = false, info.Created
	switch {
	case remade:
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
