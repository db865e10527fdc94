package kvlock

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"time"
)

// renewal is a computation in this process, in the background, of a value that is there already.
type renewal struct {
	done   chan struct{}
	result Result
	err    error
}

// errNotRenewed says that a background computation left things to those who want the value.
var errNotRenewed = errors.New("kvlock: value was not computed anew")

// offer returns what the slot answers, if the caller is content with it: a value that is good, or a stale one if there is
// no newer one in time. It has the value computed anew when that is due.
func (f *Flight) offer(ctx context.Context, w *wait, slot Slot, t task) (r Result, ok bool, err error) {
	switch {
	case !slot.hasValue():
		return Result{}, false, nil
	case slot.NotFound:
		return Result{}, true, f.refused(ctx, slot, *w)
	case !slot.Stale():
		if f.due(slot, t.opts) {
			f.refresh(ctx, t)
		}
		return f.served(ctx, slot, *w), true, nil
	case slot.valueAge() >= slot.fresh()+t.opts.Stale:
		return Result{}, false, nil
	}
	if !slot.paused() {
		renewed := f.refresh(ctx, t)
		if t.waits != nil {
			t.waits()
		}
		if r, err := renewed.await(ctx, t.opts.StaleWait); err == nil || errors.Is(err, ErrNotFound) {
			return r, true, err
		}
	}
	w.outcome = Stale
	e := slot.event(EventStale)
	e.Elapsed = slot.valueAge()
	f.emit(ctx, e)
	return f.served(ctx, slot, *w), true, nil
}

// due says that the value is to be computed anew before it expires. Each process draws when, for each value.
func (f *Flight) due(slot Slot, opts DoOptions) bool {
	fresh := slot.fresh()
	if opts.Refresh == 0 || fresh == 0 || slot.paused() || slot.State == Pending && !slot.abandoned() {
		return false
	}
	drawn := float64(maphash.Comparable(f.seed, slot.Revision)) / math.MaxUint64
	after := opts.Refresh + (1-opts.Refresh)/2*drawn
	return slot.valueAge() >= time.Duration(after*float64(fresh))
}

// await waits for up to d, and returns errNotRenewed when that was not enough.
func (r *renewal) await(ctx context.Context, d time.Duration) (Result, error) {
	if r == nil || d == 0 {
		return Result{}, errNotRenewed
	}
	enough := time.NewTimer(d)
	defer enough.Stop()
	select {
	case <-r.done:
		return r.result, r.err
	case <-enough.C:
		return Result{}, errNotRenewed
	case <-ctx.Done():
		return Result{}, errNotRenewed
	}
}

// refresh has the value of a key computed anew in the background, once at a time in this process. It returns nil when the
// Flight closes.
func (f *Flight) refresh(ctx context.Context, t task) *renewal {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending.Err() != nil {
		return nil
	}
	if r := f.renewals[t.key]; r != nil {
		return r
	}
	r := &renewal{done: make(chan struct{})}
	f.renewals[t.key] = r
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(f.ending, func() { cancel(context.Cause(f.ending)) })
	f.work.Go(func() {
		defer cancel(nil)
		defer stop()
		r.result, r.err = f.renew(ctx, t)
		f.mu.Lock()
		delete(f.renewals, t.key)
		f.mu.Unlock()
		close(r.done)
	})
	return r
}

// renew computes the value of a key anew, unless somebody else does, or did, and then waits for that.
func (f *Flight) renew(ctx context.Context, t task) (Result, error) {
	for {
		found, err := f.read(ctx, []string{t.key}) // what is in memory may be of before, and its value is not as it is stored
		if err != nil {
			return Result{}, err
		}
		slot, gone := found[0].readable(), false
		if slot.in().err != nil || slot.mismatch(t.opts.Fingerprint) != nil {
			return Result{}, errNotRenewed
		}
		if slot.State == Pending && !slot.abandoned() {
			slot, err = f.await(ctx, slot, false, true)
			if gone = errors.Is(err, errGone); err != nil && !gone {
				return Result{}, err
			}
		}
		switch {
		case !slot.hasValue(): // others find out
			return Result{}, errNotRenewed
		case !gone && !slot.Stale() && !f.due(slot, t.opts):
			return f.answer(ctx, slot)
		case !gone && slot.paused():
			return Result{}, errNotRenewed
		}
		claim, err := f.claim(ctx, slot, t.opts)
		switch {
		case errors.Is(err, ErrTaken):
			continue
		case err != nil:
			return Result{}, err
		}
		claim.tell(ctx, EventRefresh, nil)
		return f.compute(ctx, claim, t.fn, t.opts)
	}
}

// answer is what a slot says that somebody else completed.
func (f *Flight) answer(ctx context.Context, slot Slot) (Result, error) {
	slot, err := f.open(ctx, slot)
	switch {
	case err != nil:
		return Result{}, err
	case slot.NotFound:
		return Result{}, slot.failure()
	default:
		return f.served(ctx, slot, wait{outcome: Coalesced}), nil
	}
}
