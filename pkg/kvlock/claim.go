package kvlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nuid"
)

// BeginOptions are the choices of one [Flight.Begin]. The zero value is good.
type BeginOptions struct {
	// Fingerprint tells inputs apart that share a key. Defaults to none.
	Fingerprint string

	// Handoff says that the work will be done by whoever resumes the claim, in another process or at another time.
	// Until then anybody who holds the reference of any claim of this key may resume it. Defaults to false.
	Handoff bool

	// Revision is the key's last revision as the caller read it, from Get or GetMany. A right one saves the round
	// trips of finding out; a wrong one costs them. Defaults to 0: the key has never been written.
	Revision uint64

	// TTL is how long the claim holds without a renewal. Defaults to Config.ClaimTTL.
	TTL time.Duration
}

// ResumeOptions are the choices of one [Flight.Resume]. The zero value is good.
type ResumeOptions struct {
	// Attempt is written into the slot, for people who look. Defaults to one more than the slot's.
	Attempt int

	// Fingerprint as in [BeginOptions].
	Fingerprint string

	// TTL is how long the claim holds without a renewal. Defaults to Config.ClaimTTL.
	TTL time.Duration
}

// Claim is the right to compute one key. It ends by [Claim.Complete] or [Claim.Fail], or is lost. Its methods may be
// called concurrently; they work one after the other.
type Claim struct {
	flight *Flight
	id     string
	key    string
	token  Token

	mu       sync.Mutex
	deadline time.Time // until when the claim is ours for sure, on the monotonic clock
	record   record
	revision uint64
	ended    bool
}

// ID returns the id of the claim: the same before and after Resume.
func (c *Claim) ID() string { return c.id }

// Key returns the key that is claimed.
func (c *Claim) Key() string { return c.key }

// Token returns the fencing token: greater than that of every earlier holder of this key.
func (c *Claim) Token() Token { return c.token }

// Ref returns a reference that [Flight.Resume] takes, in this or another process: the claim's id and its revision.
func (c *Claim) Ref() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id + "." + strconv.FormatUint(c.revision, 10)
}

func parseRef(ref string) (id string, revision uint64, err error) {
	id, number, found := strings.Cut(ref, ".")
	if found {
		revision, err = strconv.ParseUint(number, 10, 64)
	}
	if !found || err != nil || id == "" || len(id) > 64 {
		return "", 0, fmt.Errorf("kvlock: %q is not the reference of a claim: want what Claim.Ref returned", ref)
	}
	return id, revision, nil
}

// Begin claims key. When the key is pending, done or failed it returns a [TakenError] that says so; the slot in it comes
// from the stream's leader.
//
// One round trip when opts.Revision is right, at most three otherwise.
func (f *Flight) Begin(ctx context.Context, key string, opts BeginOptions) (*Claim, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	r := record{Version: recordVersion, State: Pending.String(), Claim: nuid.Next(), Attempt: 1, Fingerprint: opts.Fingerprint, Handoff: opts.Handoff}
	return f.take(ctx, key, opts.Revision, r, opts.TTL, func(now Slot) (record, bool) {
		return r, now.State == Absent
	})
}

// Resume takes over a claim by its reference, in whatever process: after a hand-off, or because the message that
// carries the reference was delivered again after its first receiver died. The one who held it before loses it.
//
// When the claim has expired meanwhile, it is taken anew. When the key was claimed again by somebody who hands off, that
// claim is adopted: of two hand-offs only one needs to be worked. When the key is done, failed, or held by somebody else
// who works on it, a [TakenError] says so.
//
// One round trip when the claim is as it was when Ref was called, at most three otherwise.
func (f *Flight) Resume(ctx context.Context, key, ref string, opts ResumeOptions) (*Claim, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	id, revision, err := parseRef(ref)
	if err != nil {
		return nil, err
	}
	r := record{Version: recordVersion, State: Pending.String(), Claim: id, Attempt: max(opts.Attempt, 2), Fingerprint: opts.Fingerprint}
	return f.take(ctx, key, revision, r, opts.TTL, func(now Slot) (record, bool) {
		next := r
		if opts.Attempt == 0 {
			next.Attempt = now.Attempt + 1
		}
		return next, now.State == Absent || now.State == Pending && (now.Claim == id || now.Handoff)
	})
}

// take writes r as the claim of key over revision expect. When the key holds something else, again decides whether to
// try over that, and with which record.
func (f *Flight) take(ctx context.Context, key string, expect uint64, r record, ttl time.Duration, again func(Slot) (record, bool)) (*Claim, error) {
	if ttl == 0 {
		ttl = f.cfg.ClaimTTL
	}
	if err := checkTTL(ttl); err != nil {
		return nil, fmt.Errorf("kvlock: claim %q: %w", key, err)
	}
	ctx, cancel := f.bound(ctx)
	defer cancel()
	owner := nuid.Next()
	for {
		r.Owner, r.Instance, r.TTL = owner, f.cfg.Instance, seconds(ttl)
		revision, sent, err := f.write(ctx, change{key: key, expect: expect, record: r, ttl: ttl})
		var conflict *conflictError
		switch {
		case err == nil:
			return &Claim{
				flight: f, id: r.Claim, key: key, token: Token{Epoch: f.epoch, Revision: revision},
				deadline: deadline(sent, ttl), record: r, revision: revision,
			}, nil
		case !errors.As(err, &conflict):
			return nil, err
		}
		next, ok := again(conflict.slot.readable())
		if !ok {
			return nil, taken(conflict.slot, r.Fingerprint)
		}
		expect, r = conflict.slot.Revision, next
	}
}

// taken explains why a key cannot be claimed: it answers another input, or it is in use.
func taken(slot Slot, fingerprint string) error {
	slot = slot.readable()
	if err := slot.mismatch(fingerprint); err != nil {
		return err
	}
	return &TakenError{Slot: slot}
}

// Renew makes the claim hold for ttl from now, 0 for Config.ClaimTTL. It returns ErrLost when the claim is no longer
// held. One round trip.
func (c *Claim) Renew(ctx context.Context, ttl time.Duration) error {
	if ttl == 0 {
		ttl = c.flight.cfg.ClaimTTL
	}
	return c.put(ctx, ttl, func(r *record) { r.TTL = seconds(ttl) })
}

// HandOff leaves the claim, for ttl, to whoever resumes it by its reference: the job that carries it will run again
// later. 0 means Config.ClaimTTL. The claim itself ends. One round trip.
func (c *Claim) HandOff(ctx context.Context, ttl time.Duration) error {
	if ttl == 0 {
		ttl = c.flight.cfg.ClaimTTL
	}
	return c.put(ctx, ttl, func(r *record) { r.TTL, r.Handoff = seconds(ttl), true })
}

// Complete makes value the result of the key, for ttl, 0 for Config.ResultTTL, and ends the claim. Waiters get the
// value. It returns ErrLost, and nothing is stored, when the claim is no longer held. One round trip.
func (c *Claim) Complete(ctx context.Context, value []byte, ttl time.Duration) (Slot, error) {
	if ttl == 0 {
		ttl = c.flight.cfg.ResultTTL
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.apply(ctx, change{value: value, ttl: ttl}, func(r *record) { r.State, r.TTL = Done.String(), seconds(ttl) })
	if err != nil {
		return Slot{}, err
	}
	c.ended = true
	return c.record.slot(c.key, value, c.revision, time.Now()), nil
}

// Fail ends the claim without a result. Those who wait get reason. With a ttl of 0 the key is absent at once, so that
// the next caller computes again; otherwise the failure is kept for ttl, and Begin refuses with it. It returns ErrLost
// when the claim is no longer held. One round trip.
func (c *Claim) Fail(ctx context.Context, reason string, ttl time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := change{ttl: ttl}
	if ttl == 0 {
		ch = change{ttl: markerTTL(time.Duration(c.record.TTL) * time.Second), purge: true}
	}
	_, err := c.apply(ctx, ch, func(r *record) {
		r.State, r.TTL, r.Reason = Failed.String(), seconds(ttl), truncate(reason, maxReasonBytes)
	})
	if err == nil {
		c.ended = true
	}
	return err
}

// put rewrites the pending record and moves the deadline.
func (c *Claim) put(ctx context.Context, ttl time.Duration, edit func(*record)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent, err := c.apply(ctx, change{ttl: ttl}, edit)
	if err != nil {
		return err
	}
	c.deadline = deadline(sent, ttl)
	c.ended = c.record.Handoff
	return nil
}

// apply writes the edited record over the claim's revision.
func (c *Claim) apply(ctx context.Context, ch change, edit func(*record)) (sent time.Time, err error) {
	if c.ended {
		return sent, fmt.Errorf("%w: claim %s of %q has already ended", ErrLost, c.id, c.key)
	}
	if err := checkTTL(ch.ttl); err != nil {
		return sent, fmt.Errorf("kvlock: claim %s of %q: %w", c.id, c.key, err)
	}
	next := c.record
	next.Handoff = false
	edit(&next)
	ch.key, ch.expect, ch.record = c.key, c.revision, next
	revision, sent, err := c.flight.write(ctx, ch)
	var conflict *conflictError
	switch {
	case errors.As(err, &conflict):
		c.ended = true
		return sent, fmt.Errorf("%w: claim %s of %q: %w", ErrLost, c.id, c.key, err)
	case err != nil:
		return sent, err
	}
	c.record, c.revision = next, revision
	return sent, nil
}

// maxReasonBytes bounds the reason of a failure. It travels to every waiter.
const maxReasonBytes = 2 << 10

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
