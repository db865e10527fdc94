package flight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// Claim is the right to compute one key. It ends by [Claim.Complete], [Claim.Fail], [Claim.Release] or [Claim.HandOff],
// or is lost. Its methods may be called concurrently; they write one after the other.
type Claim struct {
	flight *Flight
	id     string
	key    string
	token  kvlock.Token
	taken  time.Time // the time of the request for it, on the monotonic clock

	lost  atomic.Bool // the observer knows
	write sync.Mutex  // held while a write is under way

	mu       sync.Mutex // guards the fields below; never held during a write, so that the deadline can be watched
	deadline time.Time  // the time until which the claim is ours for sure, on the monotonic clock
	pending  uint64     // the last revision at which the key was pending: a reference never names a result
	record   claimRecord
	revision uint64
	ended    error // the reason that no write is possible any more: errEnded, or ErrLost
}

// errEnded is the cause of the end of a claim that its holder ended.
var errEnded = errors.New("it has already ended")

// ID returns the id of the claim, which is the same before and after Resume.
func (c *Claim) ID() string { return c.id }

// Key returns the key that is claimed.
func (c *Claim) Key() string { return c.key }

// Token returns the fencing token: greater than that of every earlier holder of this key.
func (c *Claim) Token() kvlock.Token { return c.token }

// Ref returns a reference that [Flight.Resume] takes, in this or another process: letters, digits and dots. After
// another write under the claim the reference stays valid, and Resume costs up to two more round trips.
func (c *Claim) Ref() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return formatRef(c.id, c.pending, c.record.Attempt)
}

// Renew makes the claim hold for ttl from now, 0 for Config.ClaimTTL. A holder that renews works on the key: Renew ends an intended
// hand-off, and then only the claim's own reference resumes the claim. It returns ErrLost when the claim is no longer held. One round
// trip.
func (c *Claim) Renew(ctx context.Context, ttl time.Duration) error {
	ttl = cmp.Or(ttl, c.flight.cfg.ClaimTTL)
	_, err := c.apply(ctx, change{Change: kv.Change{TTL: ttl}}, nil, renewal(ttl))
	return err
}

func renewal(ttl time.Duration) func(*claimRecord) {
	return func(r *claimRecord) { r.TTL = int64(ttl / time.Second) }
}

// HandOff leaves the claim, for ttl, 0 for Config.ClaimTTL, to the process that resumes it by its reference. A job that runs later carries
// the reference. This Claim ends. One round trip.
func (c *Claim) HandOff(ctx context.Context, ttl time.Duration) error {
	ttl = cmp.Or(ttl, c.flight.cfg.ClaimTTL)
	_, err := c.apply(ctx, change{Change: kv.Change{TTL: ttl}}, errEnded, func(r *claimRecord) {
		r.TTL, r.HandOff = int64(ttl/time.Second), true
	})
	return err
}

// Complete makes value the result of the key, for ttl, 0 for Config.ResultTTL, and ends the claim. Waiters get the
// value. It returns ErrLost when the claim is no longer held, and ErrTooLarge when the value can never be stored;
// nothing is stored then. If the acknowledgement is lost and the key is invalidated before it is read back, Complete
// returns ErrLost for a value that was stored until the invalidation. One round trip.
func (c *Claim) Complete(ctx context.Context, value []byte, ttl time.Duration) (Entry, error) {
	ttl = cmp.Or(ttl, c.flight.cfg.ResultTTL)
	// Before an object is written: it would stay without a record.
	if err := c.checkTTL(ttl); err != nil {
		return Entry{}, err
	}
	edit := func(r *claimRecord) { r.State, r.TTL = Done.String(), int64(ttl/time.Second) }
	packed, data, err := c.pack(ctx, value, ttl, edit)
	if err != nil {
		return Entry{}, err
	}
	// The result replaces the claim in one write: no reader ever finds neither.
	return c.apply(ctx, change{Change: kv.Change{TTL: ttl}, value: data, opened: value}, errEnded, func(r *claimRecord) {
		edit(r)
		r.Value = packed
	})
}

// Fail ends the claim without a result. Waiters get the first 1,024 bytes of reason. With a ttl of 0 the key is absent at once, so that
// the next caller computes again; otherwise the failure is kept for ttl. Until then Begin returns a [TakenError] with the failure. It
// returns ErrLost when the claim is no longer held. One round trip.
func (c *Claim) Fail(ctx context.Context, reason string, ttl time.Duration) error {
	if ttl == 0 {
		return c.remove(ctx, func(r *claimRecord) { r.Reason = redact.Clip(reason, maxReasonBytes) })
	}
	_, err := c.apply(ctx, change{Change: kv.Change{TTL: ttl}}, errEnded, func(r *claimRecord) {
		r.State, r.TTL, r.Reason = Failed.String(), int64(ttl/time.Second), redact.Clip(reason, maxReasonBytes)
	})
	return err
}

// Release gives the claim back: the key is absent at once, and one of the waiters takes over. It returns ErrLost when the
// claim is no longer held. One round trip.
func (c *Claim) Release(ctx context.Context) error {
	return c.remove(ctx, func(r *claimRecord) { r.Released = true })
}

// remove writes a marker: readers find the key absent, and waiters find the record in the marker.
func (c *Claim) remove(ctx context.Context, edit func(*claimRecord)) error {
	c.mu.Lock()
	ttl := kv.MarkerTTL(time.Duration(c.record.TTL) * time.Second)
	c.mu.Unlock()
	_, err := c.apply(ctx, change{Change: kv.Change{TTL: ttl, Purge: true}}, errEnded, func(r *claimRecord) {
		r.State, r.TTL = Failed.String(), 0
		edit(r)
	})
	return err
}

// apply writes the edited record over the claim's revision. ended is the reason that the claim can write nothing after that, nil if it
// can.
func (c *Claim) apply(ctx context.Context, ch change, ended error, edit func(*claimRecord)) (Entry, error) {
	entry, err := c.replace(ctx, ch, ended, edit)
	switch {
	case errors.As(err, new(*kv.ConflictError)):
		c.tellLost(ctx, err)
	case err == nil && ended != nil:
		c.tellReleased(ctx, entry)
	}
	return entry, err
}

// replace is apply without the events.
func (c *Claim) replace(ctx context.Context, ch change, ended error, edit func(*claimRecord)) (Entry, error) {
	c.write.Lock() // from here on nobody else changes the fields that mu guards
	defer c.write.Unlock()
	if err := c.checkTTL(ch.TTL); err != nil {
		return Entry{}, err
	}
	c.mu.Lock()
	next, over, held, gone := c.record, c.revision, c.deadline, c.ended
	c.mu.Unlock()
	if gone != nil {
		return Entry{}, fmt.Errorf("%w: claim %s of %q: %w", kvlock.ErrLost, c.id, c.key, errEnded)
	}
	// A hand-off ends when its claim is written, unless edit repeats it.
	next.HandOff, next.Value = false, packed{}
	edit(&next)
	c.flight.sign(&next)
	ch.Key, ch.Expect, ch.record, ch.Held, ch.Generation = c.key, over, next, held, c.token.Epoch
	era := c.flight.store.Hub.Era.Load()
	revision, sent, err := c.flight.write(ctx, &ch)

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.As(err, new(*kv.ConflictError)):
		c.ended = kvlock.ErrLost
		return Entry{}, fmt.Errorf("%w: claim %s of %q: %w", kvlock.ErrLost, c.id, c.key, err)
	// The next write, over the same revision, finds out whether this one was stored.
	case err != nil:
		return Entry{}, err
	}
	c.record, c.revision, c.deadline, c.ended = next, revision, kv.Deadline(sent, ch.TTL), ended
	if next.State == Pending.String() {
		c.pending = revision
	}
	entry := next.entry(c.key, ch.value, revision, time.Now())
	// The caller has the value: it need not be opened.
	if entry.sealed {
		entry.Value, entry.sealed = ch.opened, false
	}
	entry.asOf, entry.inner.era = revision, era
	if c.flight.memory != nil {
		c.flight.memory.stored(entry, sent)
	}
	return entry, nil
}

func (c *Claim) checkTTL(ttl time.Duration) error {
	if err := kv.CheckTTL(ttl); err != nil {
		return fmt.Errorf("kvlock: claim %s of %q: %w", c.id, c.key, err)
	}
	return nil
}

// BeginOptions are the options of one [Flight.Begin]. The zero value is valid.
type BeginOptions struct {
	// Fingerprint distinguishes inputs that share a key, in at most 1,024 bytes: hash a longer one. Defaults to none.
	Fingerprint string

	// HandOff leaves the work to the process that resumes the claim later, this or another one. Until then a process with the reference of
	// any claim of this key may resume this claim. Defaults to false.
	HandOff bool

	// Job names the purpose of the claim. Entries and the result carry its first 128 bytes, for display. Defaults to none.
	Job string

	// Seen is the entry that the caller last got for the key from Get, GetMany, Wait or a Watcher. If the key was absent then and has not been
	// written since, Begin needs one round trip; otherwise Seen has no effect. Defaults to the zero Entry: the key has never been written.
	Seen Entry

	// TTL is the time for which the claim holds without a renewal. Defaults to Config.ClaimTTL.
	TTL time.Duration
}

// ResumeOptions are the options of one [Flight.Resume]. The zero value is valid.
type ResumeOptions struct {
	// Attempt is written into the entry, for display. Defaults to the entry's attempt plus one.
	Attempt int

	// Fingerprint is the BeginOptions.Fingerprint of the claim. If Resume reads the entry and finds another fingerprint, it returns
	// ErrMismatch; if it does not read the entry, Fingerprint replaces the entry's. Defaults to none.
	Fingerprint string

	// TTL is the time for which the claim holds without a renewal. Defaults to Config.ClaimTTL.
	TTL time.Duration

	// Yield leaves the claim to a process that resumed it before and has not handed it off since, as long as that process is alive and renews
	// the claim. A message may be delivered again although its first receiver is alive. Resume then returns a [TakenError] with the pending
	// entry, after at most two probes. Defaults to false: the claim is taken from its holder.
	Yield bool
}

// Begin claims key. When the key is pending, done or failed it returns a [TakenError] with the entry, which comes from
// the stream's leader.
//
// One round trip when the key is as in opts.Seen, at most three otherwise.
func (f *Flight) Begin(ctx context.Context, key string, opts BeginOptions) (*Claim, error) {
	r := claimRecord{
		Head: kv.Head{State: Pending.String(), Claim: nuid.Next()}, Attempt: 1, Fingerprint: opts.Fingerprint, HandOff: opts.HandOff,
		Job: redact.Clip(opts.Job, maxJobBytes),
	}
	var over uint64 // the revision of a key that was never written
	if opts.Seen.readable().State == Absent {
		over = opts.Seen.Revision
	}
	return f.take(ctx, key, over, r, opts.TTL, func(now Entry) (claimRecord, bool) {
		return r, now.State == Absent
	})
}

// Resume takes over a claim by its reference, in this or another process: after a hand-off, or because the message that
// carries the reference was delivered again after its first receiver died. The previous holder loses the claim.
//
// When the claim has expired in the meantime, the key is reclaimed. When the key was claimed again with HandOff, for the same fingerprint,
// Resume takes that claim: one of two hand-offs is enough. When the key is done, failed, or held by another process that works on it,
// Resume returns a [TakenError]. For a ref that is not the reference of a claim it returns ErrInvalidRef.
//
// One round trip when the claim is as it was when Ref was called, at most three otherwise.
func (f *Flight) Resume(ctx context.Context, key, ref string, opts ResumeOptions) (*Claim, error) {
	id, revision, attempt, err := parseRef(ref)
	if err != nil {
		return nil, err
	}
	r := claimRecord{Head: kv.Head{State: Pending.String(), Claim: id}, Attempt: attempt + 1, Fingerprint: opts.Fingerprint}
	if opts.Attempt > 0 {
		r.Attempt = opts.Attempt
	}
	return f.take(ctx, key, revision, r, opts.TTL, func(now Entry) (claimRecord, bool) {
		next := r
		if opts.Attempt == 0 && now.Attempt > 0 {
			next.Attempt = now.Attempt + 1
		}
		next.Job = now.Job
		free := now.HandOff || now.Claim == id && (!opts.Yield || f.isDead(ctx, now))
		ours := now.State == Pending && free && now.Fingerprint == opts.Fingerprint
		return next, now.State == Absent || ours
	})
}

// takeOver takes the claim in entry from a member that is gone. When that member was alive after all and wrote, takeOver
// returns a [TakenError] with that entry. One round trip.
func (f *Flight) takeOver(ctx context.Context, entry Entry, opts DoOptions) (*Claim, error) {
	r := claimRecord{
		Head: kv.Head{State: Pending.String(), Claim: entry.Claim}, Attempt: entry.Attempt + 1, Fingerprint: entry.Fingerprint,
		Job: redact.Clip(opts.Job, maxJobBytes),
	}
	return f.take(ctx, entry.Key, entry.Revision, r, opts.ClaimTTL, func(Entry) (claimRecord, bool) { return r, false })
}

// take writes r as the claim of key over revision at. When the key has another entry, again decides whether to write over that entry,
// and with which record.
func (f *Flight) take(
	ctx context.Context, key string, at uint64, r claimRecord, ttl time.Duration, again func(Entry) (claimRecord, bool),
) (*Claim, error) {
	ttl = cmp.Or(ttl, f.cfg.ClaimTTL)
	if err := errors.Join(kv.CheckKey(key), kv.CheckTTL(ttl), checkFingerprint(r.Fingerprint)); err != nil {
		return nil, fmt.Errorf("kvlock: claim %s: %w", redact.Quote(key), err)
	}
	bounded, cancel := f.store.Bound(ctx, f.store.OpTimeout)
	defer cancel()
	// All tries have one owner: an earlier one, whose outcome is unknown, is ours too.
	owner := nuid.Next()
	for {
		r.Version, r.Owner, r.Instance, r.TTL = kv.Version, owner, f.store.Instance, int64(ttl/time.Second)
		f.sign(&r)
		ch := change{Change: kv.Change{Key: key, Expect: at, TTL: ttl, Token: true}, record: r}
		revision, sent, err := f.write(bounded, &ch)
		switch {
		// The revision is the token, and the claim counts from the time at which its write was sent, not from the acknowledgement.
		case err == nil:
			token := kvlock.Token{Epoch: f.store.Generation(), Revision: revision}
			c := &Claim{flight: f, id: r.Claim, key: key, token: token, taken: sent, pending: revision, record: r, revision: revision}
			c.deadline = kv.Deadline(sent, ttl)
			c.tell(ctx, EventAcquired, nil)
			return c, nil
		case !errors.As(err, new(*kv.ConflictError)):
			return nil, err
		}
		// The refusal came with the entry of the leader: at most one more write decides, unless others write too.
		now, err := f.unseal(ctx, ch.present.readable())
		if err != nil {
			return nil, err
		}
		next, ok := again(now)
		if !ok {
			if now.State == Pending {
				f.emit(ctx, now.event(EventHeld))
			}
			return nil, takenError(now, r.Fingerprint)
		}
		at, r = now.Revision, next
	}
}

func checkFingerprint(fingerprint string) error {
	switch {
	case len(fingerprint) > maxFingerprintBytes:
		return fmt.Errorf("fingerprint of %d bytes, the limit is %d: hash it", len(fingerprint), maxFingerprintBytes)
	case !utf8.ValidString(fingerprint): // the record, which is JSON, would have another one
		return fmt.Errorf("fingerprint %s is not UTF-8: write it in hexadecimal", redact.Quote(fingerprint))
	}
	return nil
}

// reportStaying reports a claim that could not be ended.
func (c *Claim) reportStaying(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, kvlock.ErrLost) {
		c.flight.store.Log.WarnContext(ctx, "kvlock: claim stays until it expires", "key", c.key, "claim", c.id, "error", err)
	}
}

// AutoRenew renews the claim every third of ttl, 0 for Config.ClaimTTL, until stop is called, ctx ends or the claim is ended. The context
// held ends with ctx, and with the cause ErrLost when the claim is lost: because the server refused a renewal, or because no renewal was
// acknowledged in time, even if the server cannot be reached. held ends before another process can claim the key: at the TTL, less a
// margin, after the last acknowledged renewal was sent.
//
// stop returns when the renewals have ended; it leaves the claim as it is. For a ttl that is not in whole seconds, or out of range, held
// has ended from the beginning, with a cause that says so.
func (c *Claim) AutoRenew(ctx context.Context, ttl time.Duration) (held context.Context, stop func()) {
	ttl = cmp.Or(ttl, c.flight.cfg.ClaimTTL)
	inner, cancel := context.WithCancelCause(ctx)
	// There is no error to return: the cause of held says it.
	if err := c.checkTTL(ttl); err != nil {
		cancel(err)
	}
	expire := func() {
		err := fmt.Errorf("%w: claim %s of %q: no renewal was acknowledged in time", kvlock.ErrLost, c.id, c.key)
		cancel(err)
		c.tellLost(inner, err)
	}
	// Most claims end before they have to be renewed: their goroutines never start. A claim that was begun for less than ttl, or a while
	// ago, is due earlier.
	until, _ := c.heldUntil()
	left := time.Until(until)
	var both sync.WaitGroup
	both.Add(2)
	renewals := time.AfterFunc(min(ttl/3, left/2), func() {
		defer both.Done()
		c.renew(inner, cancel, ttl)
	})
	expiry := time.AfterFunc(left, func() {
		defer both.Done()
		c.guard(inner, expire)
	})
	late := func() {
		if until, ended := c.heldUntil(); ended == nil && !time.Now().Before(until) {
			expire()
		}
	}
	return kv.DeadlineContext(inner, late), func() {
		cancel(context.Canceled)
		for _, timer := range []*time.Timer{renewals, expiry} {
			if timer.Stop() {
				both.Done()
			}
		}
		both.Wait()
	}
}

// renew renews until ctx ends or the claim does. If a value in ctx panics, the renewals end, and in time the claim.
func (c *Claim) renew(ctx context.Context, lost context.CancelCauseFunc, ttl time.Duration) {
	defer redact.Catch(c.flight.store.Log, "a value in the context of AutoRenew")
	for wait := time.Duration(0); retry.Sleep(ctx, wait); {
		_, err := c.replace(ctx, change{Change: kv.Change{TTL: ttl}}, nil, renewal(ttl))
		_, ended := c.heldUntil()
		switch {
		case err == nil:
			wait = ttl / 3
		case ctx.Err() != nil || errors.Is(ended, errEnded):
			return
		case errors.Is(err, kvlock.ErrLost):
			lost(err) // before an observer, which may take long
			c.tellLost(ctx, err)
			return
		default:
			c.flight.store.Log.WarnContext(ctx, "kvlock: renewal failed, trying again", "key", c.key, "claim", c.id, "error", err)
			c.tell(ctx, EventRenewalFailed, err)
			wait = min(ttl/10, time.Second)
		}
	}
}

// guard calls expire when the claim may no longer be ours. It shares no lock with a renewal under way, so it is on time when a renewal
// hangs.
func (c *Claim) guard(ctx context.Context, expire func()) {
	for left := time.Duration(0); retry.Sleep(ctx, left); {
		until, ended := c.heldUntil()
		if ended != nil {
			return
		}
		if left = time.Until(until); left <= 0 {
			expire()
			return
		}
	}
}

func (c *Claim) heldUntil() (until time.Time, ended error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline, c.ended
}

// sign writes the name of this process into a claim, if others can find out whether the process is alive.
func (f *Flight) sign(r *claimRecord) {
	r.Member, r.Server = "", ""
	if !r.HandOff && r.State == Pending.String() {
		r.Member, r.Server = f.liveness.Self()
	}
}

// isDead reports whether the process that holds the claim in entry is known to be gone.
func (f *Flight) isDead(ctx context.Context, entry Entry) bool {
	return entry.State == Pending && f.liveness.IsGone(ctx, entry.in().member, entry.in().server)
}
