package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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

	// Changed applies a write of key by this process that the server acknowledged.
	Changed(key string, revision uint64)

	// Extend records that no change from before then is missing.
	Extend(then time.Time)

	// Suspend records that changes may be missing until the next Extend.
	Suspend()

	// Skip forgets everything and begins anew behind sequence, or behind the last change that was pushed.
	Skip(sequence uint64)

	// Reset forgets everything and begins anew behind sequence, whatever was pushed.
	Reset(sequence uint64)
}

// Feed makes the hub call the mirror of each partition for all changes there from now on, in their order. It asks the leader for the
// number of the last change. One round trip, and one for each other partition.
func (h *Hub) Feed(ctx context.Context, of func(partition int) Mirror) error {
	if h.feeds[0].subscription.subject == "" {
		return fmt.Errorf("kvlock: Memory needs a bucket that republishes all its changes, and bucket %q does not", h.store.Bucket)
	}
	h.mu.Lock()
	for i, f := range h.feeds {
		f.mirror = of(i)
	}
	err := h.start()
	active := h.active()
	for _, f := range active {
		if err == nil {
			f.checks.start()
		}
	}
	h.mu.Unlock()
	for _, f := range active {
		if err == nil {
			err = f.checks.check(ctx)
		}
	}
	return err
}

// feed is the hub's state for the pushes of one partition.
type feed struct {
	hub          *Hub
	store        *Store // of the partition
	subscription republished
	checks       *leaderCheck
	mirror       Mirror // nil when there is none
	stop         func() // ends the subscription; nil before it begins

	gaps gapTracker // guarded by the hub's mu
}

func newFeed(h *Hub, s *Store, republish *jetstream.RePublish) *feed {
	s.feed = &feed{hub: h, store: s, subscription: newRepublished(s.prefix, republish), checks: newLeaderCheck(s)}
	return s.feed
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
func (f *feed) track(key string, sequence uint64) bool {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.trackSequence(sequence)
	return f.hub.keys[key] != nil
}

// trackSequence records the number of a change that was pushed. If earlier changes are missing, it makes all keys due, but not again for
// each of many gaps. The caller holds mu.
func (f *feed) trackSequence(sequence uint64) {
	g := &f.gaps
	gap := g.begun && sequence > g.applied+1
	g.applied = max(g.applied, sequence)
	if !gap {
		return
	}
	g.floor, g.trusted = sequence, time.Time{}
	if now := time.Now(); now.Sub(g.reread) >= PollEvery {
		g.reread = now
		f.hub.allDue()
	}
}

// pushedUpTo returns the number of the last change that was pushed.
func (f *feed) pushedUpTo() uint64 {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	return f.gaps.applied
}

// skip begins anew behind sequence, or behind the last change that was pushed: the known values may have changed up to
// there.
func (f *feed) skip(sequence uint64) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.beginBehind(max(sequence, f.gaps.applied))
}

// reset begins anew behind sequence, whatever was pushed: the known values may have been undone.
func (f *feed) reset(sequence uint64) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.beginBehind(sequence)
}

// beginBehind is the common part of skip and reset. The caller holds mu.
func (f *feed) beginBehind(sequence uint64) {
	first := !f.gaps.begun
	f.gaps.applied, f.gaps.floor, f.gaps.begun = sequence, sequence, true
	if !first {
		f.hub.forget()
		return
	}
	for _, k := range f.hub.due { // they are being read, or become due again
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
	for _, f := range h.feeds {
		f.gaps.trusted = time.Time{}
	}
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
func (f *feed) extend(then time.Time) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.gaps.trusted = then.Add(2 * PollEvery)
	f.hub.lastHeard = time.Now()
}

// suspend makes the poller read keys when they are due, until extend is called.
func (f *feed) suspend() {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.gaps.trusted = time.Time{}
}

// defers reports whether the regular read of k is not needed: its watchers have its value, and further changes are pushed. The caller
// holds mu.
func (h *Hub) defers(k *watched, now time.Time) bool {
	gaps := &h.feed(k.key).gaps
	known := k.asOf > 0 && k.asOf >= max(k.floor, gaps.floor) && k.known && !k.expired(now.Add(batchWindow))
	if !known || !now.Before(gaps.trusted) || k.deferred >= maxDefers || k.resting() || !k.served(0) {
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

// count records whether k is polled regularly. It is called after each change of its watchers. The caller holds mu.
func (h *Hub) count(k *watched) {
	rests := k.resting() || k.watchers.none()
	switch {
	case rests == k.rests:
		return
	case rests:
		h.regular--
	default:
		h.regular++
		if h.regular == busyThreshold+1 && h.feeds[0].subscription.subject != "" {
			for _, f := range h.active() {
				f.checks.start()
				f.checks.soon()
			}
		}
	}
	k.rests = rests
}
