package kvlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nuid"
)

// BeginOptions are the choices of one [Flight.Begin]. The zero value is good.
type BeginOptions struct {
	// Fingerprint tells inputs apart that share a key, in at most 1,024 bytes: hash what is longer. Defaults to none.
	Fingerprint string

	// Handoff says that the work will be done by whoever resumes the claim, in another process or at another time.
	// Until then anybody who holds the reference of any claim of this key may resume it. Defaults to false.
	Handoff bool

	// Job names what the key is claimed for, for people who look, and for who gets the result: 128 bytes of it are kept.
	// Defaults to none.
	Job string

	// Seen is the key as the caller saw it last: in Get, GetMany, Wait, or from a Watcher. When it was absent, and has not
	// been written since, that saves the round trips of finding out; otherwise it says nothing. Defaults to the zero Slot:
	// the key has never been written.
	Seen Slot

	// TTL is how long the claim holds without a renewal. Defaults to Config.ClaimTTL.
	TTL time.Duration
}

// ResumeOptions are the choices of one [Flight.Resume]. The zero value is good.
type ResumeOptions struct {
	// Attempt is written into the slot, for people who look. Defaults to one more than the slot's.
	Attempt int

	// Fingerprint is what Begin was given: another one is refused with ErrMismatch where it is seen, and else
	// replaces it. Defaults to none.
	Fingerprint string

	// TTL is how long the claim holds without a renewal. Defaults to Config.ClaimTTL.
	TTL time.Duration

	// Yield leaves the claim to one who resumed it before and has not handed it off since, for as long as that one
	// renews it and its process is there: a message may be delivered again although its first receiver is alive. A
	// [TakenError] with the pending slot then says so, after at most two probes. Defaults to false: the claim is taken
	// from whoever has it.
	Yield bool
}

// Begin claims key. When the key is pending, done or failed it returns a [TakenError] that says so; the slot in it comes
// from the stream's leader.
//
// One round trip when the key is as opts.Seen says, at most three otherwise.
func (f *Flight) Begin(ctx context.Context, key string, opts BeginOptions) (*Claim, error) {
	r := record{
		State: Pending.String(), Claim: nuid.Next(), Attempt: 1, Fingerprint: opts.Fingerprint, Handoff: opts.Handoff,
		Job: truncate(opts.Job, maxJobBytes),
	}
	return f.take(ctx, key, opts.Seen.freeAt(), r, opts.TTL, carried{}, func(now Slot) (record, bool) {
		return r, now.State == Absent || now.Stale() || now.abandoned()
	})
}

// Resume takes over a claim by its reference, in whatever process: after a hand-off, or because the message that
// carries the reference was delivered again after its first receiver died. The one who held it before loses it.
//
// When the claim has expired meanwhile, it is taken anew. When the key was claimed again by somebody who hands off, for
// the same fingerprint, that claim is adopted: of two hand-offs only one needs to be worked. When the key is done,
// failed, or held by somebody else who works on it, a [TakenError] says so. A ref that is none is ErrInvalidRef.
//
// One round trip when the claim is as it was when Ref was called, at most three otherwise.
func (f *Flight) Resume(ctx context.Context, key, ref string, opts ResumeOptions) (*Claim, error) {
	id, revision, attempt, err := parseRef(ref)
	if err != nil {
		return nil, err
	}
	r := record{State: Pending.String(), Claim: id, Attempt: attempt + 1, Fingerprint: opts.Fingerprint}
	if opts.Attempt > 0 {
		r.Attempt = opts.Attempt
	}
	return f.take(ctx, key, revision, r, opts.TTL, carried{}, func(now Slot) (record, bool) {
		next := r
		if opts.Attempt == 0 && now.Attempt > 0 {
			next.Attempt = now.Attempt + 1
		}
		next.Job = now.Job
		free := now.Handoff || now.Claim == id && (!opts.Yield || f.alive.gone(ctx, now))
		ours := now.State == Pending && free && now.Fingerprint == opts.Fingerprint
		return next, now.State == Absent || ours
	})
}

// takeOver takes the claim in slot, of a member that is gone, with the value in it. When that one was there after all and
// wrote, a [TakenError] says what. One round trip.
func (f *Flight) takeOver(ctx context.Context, slot Slot, opts DoOptions) (*Claim, error) {
	return f.takeSlot(ctx, slot, record{Claim: slot.Claim, Attempt: slot.Attempt + 1}, opts)
}

// replace claims a key to compute its value anew, while readers still get the one in slot. When the key is not as slot
// shows it, a [TakenError] says what it is. One round trip.
func (f *Flight) replace(ctx context.Context, slot Slot, opts DoOptions) (*Claim, error) {
	return f.takeSlot(ctx, slot, record{Claim: nuid.Next(), Attempt: 1}, opts)
}

func (f *Flight) takeSlot(ctx context.Context, slot Slot, r record, opts DoOptions) (*Claim, error) {
	r.State, r.Fingerprint, r.Job = Pending.String(), slot.Fingerprint, truncate(opts.Job, maxJobBytes)
	return f.take(ctx, slot.Key, slot.Revision, r, opts.ClaimTTL, slot.carry(), func(Slot) (record, bool) { return r, false })
}

// take writes r as the claim of key over revision expect, with the value that it carries. When the key holds something
// else, again decides whether to try over that, and with which record; the value is then left out.
func (f *Flight) take(
	ctx context.Context, key string, expect uint64, r record, ttl time.Duration, old carried, again func(Slot) (record, bool),
) (*Claim, error) {
	if ttl == 0 {
		ttl = f.cfg.ClaimTTL
	}
	if err := errors.Join(checkKey(key), checkTTL(ttl), checkFingerprint(r.Fingerprint)); err != nil {
		return nil, fmt.Errorf("kvlock: claim %q: %w", key, err)
	}
	bounded, cancel := f.bound(ctx)
	defer cancel()
	owner := nuid.Next()
	for {
		r.Version, r.Owner, r.Instance, r.TTL = recordVersion, owner, f.instance, seconds(ttl)
		f.alive.sign(&r)
		ch := change{key: key, expect: expect, ttl: ttl}
		old.load(&ch, &r)
		ch.record = r
		revision, sent, err := f.write(bounded, ch)
		var conflict *conflictError
		switch {
		case err == nil:
			c := &Claim{
				flight: f, id: r.Claim, key: key, token: Token{Epoch: f.epoch.Load(), Revision: revision}, taken: sent, old: old,
				deadline: deadline(sent, ttl), pending: revision, record: r, revision: revision,
			}
			c.tell(ctx, EventAcquired, nil)
			return c, nil
		case !errors.As(err, &conflict):
			return nil, err
		}
		now, err := f.open(ctx, conflict.slot.readable())
		if err != nil {
			return nil, err
		}
		next, ok := again(now)
		if !ok {
			if now.State == Pending {
				f.emit(ctx, now.event(EventHeld))
			}
			return nil, taken(now, r.Fingerprint)
		}
		expect, r, old = now.Revision, next, carried{}
	}
}

// taken explains why a key cannot be claimed: it answers another input, or it is in use.
func taken(slot Slot, fingerprint string) error {
	if err := slot.mismatch(fingerprint); err != nil {
		return err
	}
	return &TakenError{Slot: slot}
}

func checkFingerprint(fingerprint string) error {
	if len(fingerprint) > maxFingerprintBytes {
		return fmt.Errorf("fingerprint of %d bytes, the limit is %d: hash it", len(fingerprint), maxFingerprintBytes)
	}
	return nil
}

// maxClaimBytes bounds the id of a claim that comes from elsewhere. Ours have 22.
const maxClaimBytes = 64

func formatRef(id string, revision uint64, attempt int) string {
	return id + "." + strconv.FormatUint(revision, 10) + "." + strconv.Itoa(attempt)
}

// parseRef takes apart what Ref returned. It comes from outside, in a message.
func parseRef(ref string) (id string, revision uint64, attempt int, err error) {
	parts := strings.Split(ref, ".")
	if len(ref) <= 2*maxClaimBytes && len(parts) == 3 && isClaim(parts[0]) {
		var errs [2]error
		revision, errs[0] = strconv.ParseUint(parts[1], 10, 64)
		attempt, errs[1] = strconv.Atoi(parts[2])
		if errors.Join(errs[:]...) == nil && attempt > 0 && attempt < maxAttempt {
			return parts[0], revision, attempt, nil
		}
	}
	return "", 0, 0, fmt.Errorf("%w: %.64q: want what Ref of a claim or slot returned", ErrInvalidRef, ref)
}

// maxAttempt is no bound on attempts, but on what is believed of a reference.
const maxAttempt = 1 << 30

func isClaim(id string) bool {
	if id == "" || len(id) > maxClaimBytes {
		return false
	}
	for _, c := range []byte(id) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') {
			return false
		}
	}
	return true
}
