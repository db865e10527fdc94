package kv

import (
	"context"
	"fmt"
	"time"
)

const (
	// busyThreshold is how many keys are polled regularly before the leader is asked instead.
	busyThreshold = 16

	// maxDefers is how often in a row a key is not read when it is due.
	maxDefers = 10
)

// Mirror keeps a copy of the bucket in the memory of this process, which pushes keep true.
type Mirror interface {
	// Pushed takes a change of key that the bucket pushed.
	Pushed(key string, sequence uint64)

	// Changed takes a write of key that the server acknowledged to this process.
	Changed(key string, revision uint64)

	// Purged takes that at revision the keys that begin with prefix were purged below revision before.
	Purged(prefix string, before, revision uint64)

	// Extend takes that no change from before then is missing.
	Extend(then time.Time)

	// Suspend takes that changes may be missing until the next Extend.
	Suspend()

	// Skip forgets everything and begins anew behind sequence, or behind the last change that was pushed.
	Skip(sequence uint64)

	// Reset forgets everything and begins anew behind sequence, whatever was pushed.
	Reset(sequence uint64)
}

// Feed has m told of all changes from now on. It asks the leader for the number of the last. One round trip.
func (h *Hub) Feed(ctx context.Context, m Mirror) error {
	if h.subscription.subject == "" {
		return fmt.Errorf("kvlock: Memory needs a bucket that republishes all its changes, and bucket %q does not", h.store.Bucket)
	}
	h.mirror = m
	h.mu.Lock()
	err := h.start()
	if err == nil {
		h.checks.start()
	}
	h.mu.Unlock()
	if err != nil {
		h.mirror = nil
		return err
	}
	return h.checks.check(ctx)
}

// gapTracker is what the hub knows of the changes that the bucket pushed. A stream numbers its changes without gaps, so
// what was not pushed is known too. As long as nothing is missing, a read would say what is known: of a key that was read
// once, as of a change since which it has been watched.
type gapTracker struct {
	applied uint64    // all changes up to it were pushed, or floor is not below those that were not
	floor   uint64    // what is known as of a change below it may not be true any more
	begun   bool      // there is a beginning: until then any first push looks as if others were missing
	reread  time.Time // when all keys were last to be read because of missing changes
	trusted time.Time // until when none is missing, as far as it matters
}

// track takes note of a push, and reports whether its key is watched. Both at once: a key that is watched from now on has
// missed this one. A sequence of 0 is not known.
func (h *Hub) track(key string, sequence uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trackSequence(sequence)
	return h.keys[key] != nil
}

// trackSequence takes the number of a change that was pushed. It is called with mu held. When others before it are missing
// all keys are read, though not for each of many such.
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

// skip begins anew behind sequence, or behind the last change that was pushed: what is known may have changed up to it.
func (h *Hub) skip(sequence uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beginBehind(max(sequence, h.gaps.applied))
}

// reset begins anew behind sequence, whatever was pushed: what is known may have been undone.
func (h *Hub) reset(sequence uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beginBehind(sequence)
}

// beginBehind is called with mu held.
func (h *Hub) beginBehind(sequence uint64) {
	first := !h.gaps.begun
	h.gaps.applied, h.gaps.floor, h.gaps.begun = sequence, sequence, true
	if !first {
		h.forget()
		return
	}
	for _, k := range h.due { // they are being read, or are again when they are due
		k.asOf = 0
	}
}

// restart has all keys read, because the connection was down.
func (h *Hub) restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
}

// forget makes all keys due for reads that have not begun yet. It is called with mu held.
func (h *Hub) forget() {
	h.gaps.trusted = time.Time{}
	for _, k := range h.due {
		k.asOf, k.since = 0, h.reads+1
	}
	h.allDue()
}

// allDue is called with mu held.
func (h *Hub) allDue() {
	for _, k := range h.due {
		k.next = time.Time{}
	}
	h.wakePoller()
}

// extend takes that no push from before then is missing.
func (h *Hub) extend(then time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaps.trusted = then.Add(2 * PollEvery)
	h.lastHeard = time.Now()
}

// suspend has keys read when they are due, until extend is called.
func (h *Hub) suspend() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaps.trusted = time.Time{}
}

// defers reports whether k need not be read now, as it would be regularly: its watchers were told all that there is to
// say, and whatever comes is pushed. It is called with mu held.
func (h *Hub) defers(k *watched, now time.Time) bool {
	known := k.asOf > 0 && k.asOf >= max(k.floor, h.gaps.floor) && k.known && !k.expired(now.Add(batchWindow))
	if !known || !now.Before(h.gaps.trusted) || k.deferred >= maxDefers || k.resting() || !k.served(0) {
		k.deferred = 0
		return false
	}
	k.deferred++
	return true
}

// isBusy reports whether so many keys are polled regularly that the leader is asked instead.
func (h *Hub) isBusy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.regular > busyThreshold
}

// count takes note of whether k is polled regularly. It is called with mu held, after each change of its watchers.
func (h *Hub) count(k *watched) {
	rests := k.resting() || k.watchers.none()
	switch {
	case rests == k.rests:
		return
	case rests:
		h.regular--
	default:
		h.regular++
		if h.regular == busyThreshold+1 && h.subscription.subject != "" {
			h.checks.start()
			h.checks.soon()
		}
	}
	k.rests = rests
}
