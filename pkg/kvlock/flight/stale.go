package flight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// staleValue is the part of a record about a value that is kept beyond its TTL, or by a claim that computes it anew. Readers still get the
// value of that claim, and it is restored when the computation fails.
type staleValue struct {
	Claim       string `json:"claim,omitempty"`    // pending: the claim under which the value was computed
	Instance    string `json:"instance,omitempty"` // pending: where
	Job         string `json:"job,omitempty"`      // pending: of which job
	Since       int64  `json:"since,omitempty"`    // when the value was stored, in ms since 1970 by the server's clock, if not with the record
	Fresh       int64  `json:"fresh,omitempty"`    // the value's TTL in ms, when it is kept for longer
	Holds       int64  `json:"holds,omitempty"`    // pending: the claim's TTL in s, when the record is kept for longer
	RetryAfter  int64  `json:"pause,omitempty"`    // done: the time in ms, from this record on, for which nobody computes it anew
	FailedClaim string `json:"tried,omitempty"`    // done: the claim that failed to compute it anew
}

// check returns an error for a description that no writer writes.
func (v staleValue) check() error {
	for name, n := range map[string]int64{"fresh": v.Fresh, "holds": v.Holds, "pause": v.RetryAfter} {
		if n < 0 || n > int64(kv.MaxTTL/time.Millisecond) {
			return fmt.Errorf("%s of %d is out of range", name, n)
		}
	}
	if v.Since < 0 {
		return fmt.Errorf("value stored at %d", v.Since)
	}
	return nil
}

// hasValue reports whether the entry has an answer: a value, or that none exists.
func (s Entry) hasValue() bool {
	return s.State == Done || s.State == Pending && s.staleValue().Since > 0
}

// valueAge returns the time since the value was stored.
func (s Entry) valueAge() time.Duration { return s.aged + s.earlier + time.Since(s.seen) }

// fresh returns the TTL of the value; 0 means for ever.
func (s Entry) fresh() time.Duration {
	if fresh := s.staleValue().Fresh; fresh > 0 {
		return time.Duration(fresh) * time.Millisecond
	}
	return s.TTL
}

// Stale reports whether the value is past its TTL, and kept for callers with DoOptions.Stale, which take it rather than wait.
func (s Entry) Stale() bool {
	return s.hasValue() && s.staleValue().Fresh > 0 && s.valueAge() >= s.fresh()
}

// retriesLater reports whether it is too early to compute the value anew after a failure.
func (s Entry) retriesLater() bool {
	return s.aged+time.Since(s.seen) < time.Duration(s.staleValue().RetryAfter)*time.Millisecond
}

// claimEnd returns the end of a claim that the server does not end, because the server keeps the value in it for longer. It is zero for
// any other claim.
func (s *Entry) claimEnd() time.Time {
	holds := s.staleValue().Holds
	if s.State != Pending || holds == 0 {
		return time.Time{}
	}
	return s.seen.Add(time.Duration(holds)*time.Second + claimGrace - s.aged)
}

// claimGrace is added to a claim's TTL where other processes decide by their clocks that the claim is over. The holder itself ends the
// claim before the TTL.
const claimGrace = time.Second

// abandoned reports whether the claim is over though its holder did not end it.
func (s Entry) abandoned() bool {
	end := s.claimEnd()
	return !end.IsZero() && !time.Now().Before(end)
}

// restored returns the entry after an abandoned claim: the value in the claim is the result again, with its old age.
func (s Entry) restored() Entry {
	v := *s.staleValue()
	s.State, s.Claim, s.Owner, s.Job, s.Handoff = Done, v.Claim, v.Instance, v.Job, false
	v.Claim, v.Instance, v.Job, v.Holds = "", "", "", 0
	s.replace(func(in *inner) { in.stale, in.member, in.server = &v, "", "" })
	return s
}

// carriedValue is a stale value that a claim keeps for readers, in its stored form.
type carriedValue struct {
	data  []byte
	value packed
	stale staleValue
	until time.Time // when it expires
}

// carry returns the value of the entry, for a claim on it.
func (s Entry) carry() carriedValue {
	if !s.hasValue() || s.NotFound {
		return carriedValue{}
	}
	c := carriedValue{data: s.Value, stale: *s.staleValue(), until: s.seen.Add(s.TTL - s.aged)}
	if s.TTL == 0 {
		c.until = s.seen.Add(kv.MaxTTL)
	}
	if origin := s.in().origin; origin != nil { // as it is stored
		c.data, c.value = origin.stored, origin.packed
	}
	if s.State == Done {
		c.stale.Claim, c.stale.Instance, c.stale.Job = s.Claim, s.Owner, s.Job
	}
	if c.stale.Since == 0 {
		c.stale.Since = s.Created.UnixMilli()
	}
	if c.stale.Fresh == 0 {
		c.stale.Fresh = s.TTL.Milliseconds()
	}
	c.stale.Holds, c.stale.RetryAfter, c.stale.FailedClaim = 0, 0, ""
	return c
}

// left returns the time for which the value is still to be kept; 0 means not at all.
func (c carriedValue) left() time.Duration {
	if c.stale.Since == 0 {
		return 0
	}
	return wholeSeconds(time.Until(c.until))
}

// retryAfter returns the time for which no process computes the value anew after a failure, unless the caller sets that time.
func (c carriedValue) retryAfter() time.Duration {
	return min(maxRetryAfter, time.Duration(c.stale.Fresh)*time.Millisecond/4)
}

const maxRetryAfter = 10 * time.Second

// load puts the value into the change of a pending record. The claim holds for the TTL of the change.
func (c carriedValue) load(ch *change, r *claimRecord) {
	left := c.left()
	if left == 0 {
		return
	}
	ch.value, r.Value, r.Stale = c.data, c.value, c.stale
	if left > ch.ttl {
		r.Stale.Holds = kv.Seconds(ch.ttl)
		ch.ttl, r.TTL = left, kv.Seconds(left)
	}
}

// restore turns a pending record back into the record of the value, after the claim with the id failedClaim failed; "" for none.
func (c carriedValue) restore(r *claimRecord, left, retryAfter time.Duration, failedClaim string) {
	r.State, r.TTL, r.Value, r.Stale = Done.String(), kv.Seconds(left), c.value, c.stale
	r.Claim, r.Instance, r.Job = c.stale.Claim, c.stale.Instance, c.stale.Job
	r.Stale.Claim, r.Stale.Instance, r.Stale.Job = "", "", ""
	r.Stale.RetryAfter, r.Stale.FailedClaim = retryAfter.Milliseconds(), failedClaim
}

// refreshing is a computation in this process, in the background, of a value that already exists.
type refreshing struct {
	done   chan struct{}
	result Result
	err    error
}

// errNotRefreshed is the error of a background computation that leaves the decision to its callers.
var errNotRefreshed = errors.New("kvlock: value was not computed anew")

// offer returns the entry's answer if the caller accepts it: a value within its TTL, or a stale value if no newer value comes in time. It
// starts a new computation when that is due.
func (f *Flight) offer(ctx context.Context, w *wait, entry Entry, t *task) (r Result, ok bool, err error) {
	switch {
	case !entry.hasValue():
		return Result{}, false, nil
	case entry.NotFound:
		return Result{}, true, f.refused(ctx, entry, *w)
	case !entry.Stale():
		if f.due(entry, &t.opts) {
			f.refresh(ctx, t)
		}
		return f.served(ctx, entry, *w), true, nil
	case entry.valueAge() >= entry.fresh()+t.opts.Stale:
		return Result{}, false, nil
	}
	if !entry.retriesLater() {
		if r, err := f.refresh(ctx, t).await(ctx, t.opts.StaleWait); err == nil || errors.Is(err, ErrNotFound) {
			return r, true, err
		}
	}
	w.outcome = Stale
	e := entry.event(EventStale)
	e.Elapsed = entry.valueAge()
	f.emit(ctx, e)
	return f.served(ctx, entry, *w), true, nil
}

// due reports whether the value is to be computed anew before it expires. Each process draws the time at random, for
// each value.
func (f *Flight) due(entry Entry, opts *DoOptions) bool {
	fresh := entry.fresh()
	if opts.Refresh == 0 || fresh == 0 || entry.retriesLater() || entry.State == Pending && !entry.abandoned() {
		return false
	}
	drawn := float64(maphash.Comparable(f.seed, entry.Revision)) / math.MaxUint64
	after := opts.Refresh + (1-opts.Refresh)/2*drawn
	return entry.valueAge() >= time.Duration(after*float64(fresh))
}

// await waits for up to d for the result, and returns errNotRefreshed when that was not enough.
func (r *refreshing) await(ctx context.Context, d time.Duration) (Result, error) {
	if r == nil || d == 0 {
		return Result{}, errNotRefreshed
	}
	enough := time.NewTimer(d)
	defer enough.Stop()
	select {
	case <-r.done:
		return r.result, r.err
	case <-enough.C:
	case <-ctx.Done():
	}
	return Result{}, errNotRefreshed
}

// refresh starts a new computation of the value of a key in the background, one at a time in this process. It returns nil when the Flight
// closes.
func (f *Flight) refresh(ctx context.Context, t *task) *refreshing {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store.Closing.Err() != nil {
		return nil
	}
	if r := f.refreshes[t.key]; r != nil {
		return r
	}
	r := &refreshing{done: make(chan struct{})}
	f.refreshes[t.key] = r
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(f.store.Closing, func() { cancel(context.Cause(f.store.Closing)) })
	f.work.Go(func() {
		defer cancel(nil)
		defer stop()
		r.result, r.err = f.computeAnew(ctx, t)
		f.mu.Lock()
		delete(f.refreshes, t.key)
		f.mu.Unlock()
		close(r.done)
	})
	return r
}

// computeAnew computes the value of a key anew. If another process does so, or did, it waits for that result.
func (f *Flight) computeAnew(ctx context.Context, t *task) (Result, error) {
	for {
		found, err := f.read(ctx, []string{t.key}) // the memory may have an earlier value, and does not have the stored form
		if err != nil {
			return Result{}, err
		}
		entry, gone := found[0].readable(), false
		if entry.in().err != nil || entry.mismatch(t.opts.Fingerprint) != nil {
			return Result{}, errNotRefreshed
		}
		if entry.State == Pending && !entry.abandoned() {
			a, err := f.awaits(&entry, false, nil)
			if err != nil {
				return Result{}, err
			}
			now, err := a.run(ctx)
			if gone = errors.Is(err, errOwnerDead); err != nil && !gone {
				return Result{}, err
			}
			entry = *now
		}
		switch {
		case !entry.hasValue(): // others find out
			return Result{}, errNotRefreshed
		case !gone && !entry.Stale() && !f.due(entry, &t.opts):
			return f.answer(ctx, entry)
		case !gone && entry.retriesLater():
			return Result{}, errNotRefreshed
		}
		claim, err := f.claim(ctx, entry, t.opts)
		switch {
		case errors.Is(err, ErrTaken):
			continue
		case err != nil:
			return Result{}, err
		}
		claim.publish(ctx, EventRefresh, nil)
		return f.compute(ctx, claim, t.fn, t.opts)
	}
}

// answer returns the answer in an entry that another process completed.
func (f *Flight) answer(ctx context.Context, entry Entry) (Result, error) {
	entry, err := f.unseal(ctx, entry)
	switch {
	case err != nil:
		return Result{}, err
	case entry.NotFound:
		return Result{}, entry.failure()
	default:
		return f.served(ctx, entry, wait{outcome: Coalesced}), nil
	}
}

// served returns the result in entry, and emits EventCoalesced if the call waited for it.
func (f *Flight) served(ctx context.Context, entry Entry, w wait) Result {
	if w.holder != nil {
		e := entry.event(EventCoalesced)
		e.Outcome, e.Elapsed = Coalesced, time.Since(w.since)
		f.emit(ctx, e)
	}
	r := Result{
		Age: entry.valueAge(), Claim: entry.Claim, Job: entry.Job, Key: entry.Key, Outcome: cmp.Or(w.outcome, Cached), Owner: entry.Owner,
		Stored: true, Value: entry.Value,
	}
	if entry.State == Pending {
		r.Claim, r.Job, r.Owner = entry.staleValue().Claim, entry.staleValue().Job, entry.staleValue().Instance
	}
	return r
}

// failure returns the reason that the entry has no value.
func (s Entry) failure() error {
	if s.NotFound {
		return &NotFoundError{Key: s.Key, Reason: s.Reason, Owner: s.Owner}
	}
	return &FailedError{Key: s.Key, Reason: s.Reason, Owner: s.Owner}
}

// refused returns the failure in entry.
func (f *Flight) refused(ctx context.Context, entry Entry, w wait) error {
	err := entry.failure()
	if w.holder != nil {
		e := entry.event(EventCoalesced)
		e.Elapsed, e.Err = time.Since(w.since), err
		f.emit(ctx, e)
	}
	return err
}
