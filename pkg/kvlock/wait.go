package kvlock

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// wait is what a Do has waited for so far.
type wait struct {
	outcome Outcome   // of a value that is there now
	since   time.Time // when the waiting for holder began
	holder  Slot      // the claim that was waited for last
}

// awaitClaim waits for the claim that slot shows to end, or for its holder to be gone.
func (d *decision) awaitClaim(ctx context.Context) {
	d.tellWaiting(ctx)
	now, err := d.flight.wait(ctx, d.slot.Key, &d.slot, d.opts.FailOpen, true)
	d.waited(now, err)
}

// tellWaiting tells that the waiting begins.
func (d *decision) tellWaiting(ctx context.Context) {
	if d.task.waits != nil {
		d.task.waits()
	}
	d.wait.outcome, d.wait.since, d.wait.holder = Coalesced, time.Now(), d.slot
	if n, _ := ctx.Value(callKey{}).(*nesting); n != nil && n.call.busy != nil {
		n.call.leaveIt(d.slot)
	}
	d.flight.emit(ctx, d.slot.event(EventWaiting))
}

// waited takes what the waiting ended with.
func (d *decision) waited(now *Slot, err error) {
	d.gone, d.err = errors.Is(err, errGone) && !d.lost, err
	d.lost = false
	switch {
	case err == nil:
		d.slot = *now
	case errors.Is(err, errGone):
		d.slot, d.err = *now, nil
	default:
		d.slot = Slot{}
	}
}

// served is the result that slot has.
func (f *Flight) served(ctx context.Context, slot Slot, w wait) Result {
	if w.holder.Key != "" {
		e := slot.event(EventCoalesced)
		e.Outcome, e.Elapsed = Coalesced, time.Since(w.since)
		f.emit(ctx, e)
	}
	r := Result{
		Age: slot.valueAge(), Claim: slot.Claim, Job: slot.Job, Key: slot.Key, Outcome: cmp.Or(w.outcome, Cached), Owner: slot.Owner,
		Stored: true, Value: slot.Value,
	}
	if slot.State == Pending {
		r.Claim, r.Job, r.Owner = slot.kept().Claim, slot.kept().Job, slot.kept().Instance
	}
	return r
}

// failure is why slot has no value.
func (s Slot) failure() error {
	if s.NotFound {
		return &NotFoundError{Key: s.Key, Reason: s.Reason, Owner: s.Owner}
	}
	return &FailedError{Key: s.Key, Reason: s.Reason, Owner: s.Owner}
}

// refused is the failure that slot has.
func (f *Flight) refused(ctx context.Context, slot Slot, w wait) error {
	err := slot.failure()
	if w.holder.Key != "" {
		e := slot.event(EventCoalesced)
		e.Elapsed, e.Err = time.Since(w.since), err
		f.emit(ctx, e)
	}
	return err
}

// tellTakeOver emits that claim replaces one that was waited for and that its holder did not end: slot shows it still, or
// shows that it expired.
func (w *wait) tellTakeOver(ctx context.Context, claim *Claim, slot Slot) {
	if slot.State == Pending {
		w.holder = slot
	}
	if w.holder.State != Pending || slot.marker || slot.State == Done {
		return
	}
	e := w.holder.event(EventTakeOver)
	e.Attempt, e.Elapsed = claim.record.Attempt, time.Since(w.since)
	claim.flight.emit(ctx, e)
}
