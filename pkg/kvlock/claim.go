package kvlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Claim is the right to compute one key. It ends by [Claim.Complete], [Claim.Fail], [Claim.Release] or [Claim.HandOff],
// or is lost. Its methods may be called concurrently; they write one after the other.
type Claim struct {
	flight *Flight
	id     string
	key    string
	token  Token
	taken  time.Time // when it was asked for, on the monotonic clock

	old   carried     // the value that it keeps for readers
	lost  atomic.Bool // the observer knows
	write sync.Mutex  // held while a write is under way

	mu       sync.Mutex // guards what follows; never held during a write, so that the deadline can be watched
	deadline time.Time  // until when the claim is ours for sure, on the monotonic clock
	pending  uint64     // the last revision at which the key was pending: a reference never leads to a result
	record   record
	revision uint64
	ended    error // why there is nothing to write any more: errEnded, or ErrLost
}

// errEnded says that the holder itself ended the claim.
var errEnded = errors.New("it has already ended")

// ID returns the id of the claim: the same before and after Resume.
func (c *Claim) ID() string { return c.id }

// Key returns the key that is claimed.
func (c *Claim) Key() string { return c.key }

// Token returns the fencing token: greater than that of every earlier holder of this key.
func (c *Claim) Token() Token { return c.token }

// Ref returns a reference that [Flight.Resume] takes, in this or another process: letters, digits and dots. A write
// under the claim makes it cost two more round trips, but not invalid.
func (c *Claim) Ref() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return formatRef(c.id, c.pending, c.record.Attempt)
}

// Renew makes the claim hold for ttl from now, 0 for Config.ClaimTTL. Who renews works on the key: an intended hand-off
// is over, and only the claim's own reference resumes it. It returns ErrLost when the claim is no longer held. One round
// trip.
func (c *Claim) Renew(ctx context.Context, ttl time.Duration) error {
	if ttl == 0 {
		ttl = c.flight.cfg.ClaimTTL
	}
	_, err := c.apply(ctx, change{ttl: ttl}, nil, func(r *record) { r.TTL = seconds(ttl) })
	return err
}

// HandOff leaves the claim, for ttl, to whoever resumes it by its reference: the job that carries it will run again
// later. 0 means Config.ClaimTTL. The claim itself ends. One round trip.
func (c *Claim) HandOff(ctx context.Context, ttl time.Duration) error {
	if ttl == 0 {
		ttl = c.flight.cfg.ClaimTTL
	}
	_, err := c.apply(ctx, change{ttl: ttl}, errEnded, func(r *record) { r.TTL, r.Handoff = seconds(ttl), true })
	return err
}

// Complete makes value the result of the key, for ttl, 0 for Config.ResultTTL, and ends the claim. Waiters get the
// value. It returns ErrLost when the claim is no longer held, and ErrTooLarge when the value can never be stored; nothing is
// stored then. If the acknowledgement is lost and the key is invalidated before it is read back, ErrLost is returned for a
// value that was stored for that while. One round trip.
func (c *Claim) Complete(ctx context.Context, value []byte, ttl time.Duration) (Slot, error) {
	if ttl == 0 {
		ttl = c.flight.cfg.ResultTTL
	}
	return c.complete(ctx, value, ttl, 0)
}

// complete is Complete, and keeps the value for stale beyond its TTL.
func (c *Claim) complete(ctx context.Context, value []byte, ttl, stale time.Duration) (Slot, error) {
	all := min(ttl+wholeSeconds(stale), maxTTL)
	edit := func(r *record) {
		r.State, r.TTL = Done.String(), seconds(all)
		if all > ttl {
			r.Kept.Fresh = ttl.Milliseconds()
		}
	}
	packed, data, err := c.store(ctx, value, all, edit)
	if err != nil {
		return Slot{}, err
	}
	return c.apply(ctx, change{value: data, opened: value, ttl: all}, errEnded, func(r *record) {
		edit(r)
		r.Value = packed
	})
}

// Fail ends the claim without a result. Those who wait get reason, of which 1,024 bytes are kept. With a ttl of 0 the
// key is absent at once, so that the next caller computes again; otherwise the failure is kept for ttl, and Begin refuses
// with it. It returns ErrLost when the claim is no longer held. One round trip.
func (c *Claim) Fail(ctx context.Context, reason string, ttl time.Duration) error {
	switch {
	case c.old.left() > 0:
		return c.putBack(ctx, cmp.Or(ttl, c.old.pause()), c.id, reason)
	case ttl == 0:
		return c.remove(ctx, func(r *record) { r.Reason = truncate(reason, maxReasonBytes) })
	}
	_, err := c.apply(ctx, change{ttl: ttl}, errEnded, func(r *record) {
		r.State, r.TTL, r.Reason = Failed.String(), seconds(ttl), truncate(reason, maxReasonBytes)
	})
	return err
}

// Release gives the claim back: the key is absent at once, and of those who wait one takes over. It returns ErrLost when
// the claim is no longer held. One round trip.
func (c *Claim) Release(ctx context.Context) error {
	if c.old.left() > 0 {
		return c.putBack(ctx, 0, "", "")
	}
	return c.remove(ctx, func(r *record) { r.Released = true })
}

// putBack ends the claim with the value that it carries. Nobody computes it anew before the pause is over.
func (c *Claim) putBack(ctx context.Context, pause time.Duration, tried, reason string) error {
	left := c.old.left()
	_, err := c.apply(ctx, change{value: c.old.data, ttl: left}, errEnded, func(r *record) {
		c.old.restore(r, left, pause, tried)
		r.Reason = truncate(reason, maxReasonBytes)
	})
	return err
}

// nothing makes it the result that there is nothing, for ttl, or only for those who wait when it is 0.
func (c *Claim) nothing(ctx context.Context, reason string, ttl time.Duration) error {
	edit := func(r *record) { r.NotFound, r.Reason = true, truncate(reason, maxReasonBytes) }
	if ttl == 0 {
		return c.remove(ctx, edit)
	}
	_, err := c.apply(ctx, change{ttl: ttl}, errEnded, func(r *record) {
		r.State, r.TTL = Done.String(), seconds(ttl)
		edit(r)
	})
	return err
}

// remove writes a marker: the key is absent to readers, and those who wait find the record in it.
func (c *Claim) remove(ctx context.Context, edit func(*record)) error {
	c.mu.Lock()
	ttl := markerTTL(time.Duration(c.record.TTL) * time.Second)
	c.mu.Unlock()
	_, err := c.apply(ctx, change{ttl: ttl, purge: true}, errEnded, func(r *record) {
		r.State, r.TTL = Failed.String(), 0
		edit(r)
	})
	return err
}

// apply writes the edited record over the claim's revision. ended is what the claim is after it.
func (c *Claim) apply(ctx context.Context, ch change, ended error, edit func(*record)) (Slot, error) {
	slot, err := c.replace(ctx, ch, ended, edit)
	switch {
	case errors.As(err, new(*conflictError)):
		c.tellLost(ctx, err)
	case err == nil && ended != nil:
		c.tellReleased(ctx, slot)
	}
	return slot, err
}

func (c *Claim) replace(ctx context.Context, ch change, ended error, edit func(*record)) (Slot, error) {
	c.write.Lock()
	defer c.write.Unlock()
	if err := checkTTL(ch.ttl); err != nil {
		return Slot{}, fmt.Errorf("kvlock: claim %s of %q: %w", c.id, c.key, err)
	}
	holds := ch.ttl
	next, err := c.prepare(&ch, edit)
	if err != nil {
		return Slot{}, err
	}
	revision, sent, err := c.flight.write(ctx, ch)

	c.mu.Lock()
	defer c.mu.Unlock()
	var conflict *conflictError
	switch {
	case errors.As(err, &conflict):
		c.ended = ErrLost
		return Slot{}, fmt.Errorf("%w: claim %s of %q: %w", ErrLost, c.id, c.key, err)
	case err != nil:
		return Slot{}, err
	}
	c.record, c.revision, c.deadline, c.ended = next, revision, deadline(sent, holds), ended
	if parseState(next.State) == Pending {
		c.pending = revision
	}
	slot := next.slot(c.key, ch.value, revision, time.Now())
	if slot.sealed {
		slot.Value, slot.sealed = ch.opened, false
	}
	slot.asOf = revision
	if next.Kept.Since > 0 {
		slot.earlier = c.flight.clock.since(time.UnixMilli(next.Kept.Since), slot.seen)
	}
	c.flight.memory.wrote(slot, sent)
	return slot, nil
}

// prepare completes the change with what the claim is now.
func (c *Claim) prepare(ch *change, edit func(*record)) (next record, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return next, fmt.Errorf("%w: claim %s of %q: %w", ErrLost, c.id, c.key, errEnded)
	}
	next = c.record
	next.Handoff, next.Kept, next.Value = false, kept{}, packed{}
	edit(&next)
	if parseState(next.State) == Pending {
		c.old.load(ch, &next)
	}
	c.flight.alive.sign(&next)
	ch.key, ch.expect, ch.record, ch.held = c.key, c.revision, next, c.deadline
	return next, nil
}

// markerTTL is how long a marker must stay that hides a value with ttl left: a server that is killed may find the hidden
// message again when it restarts, and the marker has to be there still.
func markerTTL(ttl time.Duration) time.Duration { return min(2*max(ttl, time.Minute), maxTTL) }

// deadline is until when a claim surely holds that was written by a request sent at sent: its TTL counts from when the
// server stored it, which was later. The margin is for the server's clock running faster than ours.
func deadline(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - min(time.Second, ttl/4))
}

func seconds(ttl time.Duration) int64 { return int64(ttl / time.Second) }

// truncate cuts s to at most n bytes, at the start of a character.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
