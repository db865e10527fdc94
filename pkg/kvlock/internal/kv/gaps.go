package kv

import (
	"context"
	"time"
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

	// Skip forgets everything and begins anew behind sequence, or behind the last change that was pushed.
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

// skip makes the mirror and the hub begin anew behind the change sequence, or behind the last push if that is later: pushes may have
// overtaken the answer with sequence, and do not come again.
func (h *Hub) skip(sequence uint64) {
	if h.mirror != nil {
		h.mirror.Skip(sequence)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beginBehind(max(sequence, h.gaps.applied))
}

// Era counts the streams that the bucket has had, as far as the hub knows. The numbers in an answer to a request of an earlier era may be
// those of a former stream.
func (h *Hub) Era() uint64 { return h.era.Load() }

// reset makes the mirror and the hub begin anew behind the change sequence of another stream, whose numbers are unrelated to the former.
func (h *Hub) reset(sequence uint64) {
	h.era.Add(1)
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
		if h.regular == busyThreshold+1 {
			h.startChecks()
			h.checkSoon()
		}
	}
	k.rests = rests
}
