package flight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// decision is Do across processes, after the first read of the key: claim it or wait, until there is a value or a failure. It has no
// goroutine while it waits: thousands may wait.
type decision struct {
	flight *Flight
	key    string
	fn     func(context.Context) ([]byte, error)
	opts   DoOptions

	entry    *Entry    // the last read state of the key
	err      error     // why it could not be read
	gone     bool      // the holder of the claim in entry is gone
	lost     bool      // our own claim was lost, and not one of the function: another process took over, or the key was invalidated
	outcome  Outcome   // the outcome of a value that is there now
	awaiting *awaiting // nil while it does not wait
	since    time.Time // the time at which the wait for holder began
	holder   *Entry    // the last claim for which it waited; nil for none

	result Result // with err, when the decision is made
}

// step continues the decision until it has nothing to do before wake is called, and reports whether the decision is made.
func (d *decision) step(ctx context.Context, wake func()) (decided bool) {
	if d.entry == nil {
		entry, err := d.flight.Get(ctx, d.key)
		d.entry, d.err = &entry, err
	}
	for {
		if d.awaiting == nil {
			if !d.waits(ctx) {
				return true
			}
			d.outcome, d.since, d.holder = Coalesced, time.Now(), d.entry
			d.flight.emit(ctx, d.entry.event(EventWaiting))
			var err error
			if d.awaiting, err = d.flight.awaits(d.entry, d.opts.FailOpen, wake); err != nil {
				d.waited(nil, err)
				continue
			}
		}
		entry, over, err := d.awaiting.check(ctx)
		if !over {
			if shared := d.awaiting.entry; shared.Revision == d.entry.Revision { // shared by all watchers; the copy is dropped
				d.entry, d.holder = shared, shared
			}
			return false
		}
		d.awaiting.end()
		d.awaiting = nil
		d.waited(entry, err)
	}
}

// waits takes the next step without waiting, and reports whether the decision has to wait for the claim in entry. If not, the decision is
// made.
func (d *decision) waits(ctx context.Context) bool {
	for {
		if claims, decided := d.ready(ctx); decided {
			return false
		} else if !claims {
			return true
		}
		claim, err := d.claim(ctx)
		var taken *TakenError
		switch {
		case errors.As(err, &taken):
			d.entry = &taken.Entry
			d.outcome = Coalesced
			continue
		case err != nil:
			d.err = err
			continue
		}
		d.tellTakeOver(ctx, claim)
		d.result, d.err = d.compute(ctx, claim)
		if !d.lost || ctx.Err() != nil {
			return false
		}
		d.entry, d.err, d.result = &Entry{Key: d.key}, nil, Result{}
		return true
	}
}

// ready reports whether the key is to be claimed now, and whether the decision is made.
func (d *decision) ready(ctx context.Context) (claims, decided bool) {
	if d.gone {
		d.gone = false
		return true, false
	}
	if d.err != nil {
		d.result, d.err = d.degrade(ctx, d.err)
		return false, true
	}
	if d.err = d.entry.mismatch(d.opts.Fingerprint); d.err != nil {
		return false, true
	}
	switch d.entry.State {
	case Done:
		d.result = d.served(ctx)
		return false, true
	case Failed:
		d.err = d.refused(ctx)
		return false, true
	case Pending:
		return false, false
	default:
		return true, false
	}
}

// served returns the result in entry, and emits EventCoalesced if the call waited for it.
func (d *decision) served(ctx context.Context) Result {
	if d.holder != nil {
		e := d.entry.event(EventCoalesced)
		e.Outcome, e.Elapsed = Coalesced, time.Since(d.since)
		d.flight.emit(ctx, e)
	}
	return d.entry.result(cmp.Or(d.outcome, Cached))
}

// refused returns the failure in entry.
func (d *decision) refused(ctx context.Context) error {
	err := &FailedError{Key: d.key, Reason: d.entry.Reason, Owner: d.entry.Owner}
	if d.holder != nil {
		e := d.entry.event(EventCoalesced)
		e.Elapsed, e.Err = time.Since(d.since), err
		d.flight.emit(ctx, e)
	}
	return err
}

// claim claims the key: held by a process that is gone, or absent.
func (d *decision) claim(ctx context.Context) (*Claim, error) {
	if d.entry.State == Pending {
		return d.flight.takeOver(ctx, *d.entry, d.opts)
	}
	return d.flight.Begin(ctx, d.key, BeginOptions{
		Fingerprint: d.opts.Fingerprint, Job: d.opts.Job, Seen: *d.entry, TTL: d.opts.ClaimTTL,
	})
}

// degrade ends a Do that JetStream did not answer, for the reason cause: with that error, or by computing without JetStream if the caller
// asked for that.
func (d *decision) degrade(ctx context.Context, cause error) (Result, error) {
	if !d.opts.FailOpen || !errors.Is(cause, kvlock.ErrUnavailable) || ctx.Err() != nil {
		return Result{}, cause
	}
	f := d.flight
	f.store.Log.WarnContext(ctx, "kvlock: computing without coordination", "key", d.key, "error", cause)
	value, err := protect(ctx, d.key, d.fn)
	if err != nil {
		return Result{}, err
	}
	return Result{Job: d.opts.Job, Key: d.key, Outcome: Computed, Owner: f.store.Instance, Value: value}, nil
}

// waited applies the end of a wait to the decision.
func (d *decision) waited(now *Entry, err error) {
	d.gone, d.err = errors.Is(err, errOwnerDead) && !d.lost, err
	d.lost = false
	switch {
	case err == nil:
		d.entry = now
	case errors.Is(err, errOwnerDead):
		d.entry, d.err = now, nil
	}
}

// tellTakeOver emits EventTakeOver when claim replaces a claim for which this call waited and which its holder did not end: the claim in
// entry is still pending, or has expired.
func (d *decision) tellTakeOver(ctx context.Context, claim *Claim) {
	if d.entry.State == Pending {
		d.holder = d.entry
	}
	if d.holder == nil || d.holder.State != Pending || d.entry.marker {
		return
	}
	e := d.holder.event(EventTakeOver)
	e.Attempt, e.Elapsed = claim.record.Attempt, time.Since(d.since)
	d.flight.emit(ctx, e)
}

// awaiting is a wait for the end of a key's claim, or of its holder. It has no goroutine: wake is called when check may find that the wait
// is over.
type awaiting struct {
	watcher *Watcher
	entry   *Entry      // the last entry seen: pending, or unseen
	bounded bool        // the wait ends when nothing was received from the bucket for long
	probe   *kv.Probe   // of the holder; nil when there is none, or it cannot be probed
	timer   *time.Timer // calls wake; nil when that was never needed
}

// awaits begins a wait for the claim in entry. wake is called when check may find an end.
func (f *Flight) awaits(entry *Entry, bounded bool, wake func()) (*awaiting, error) {
	w := newWatcher(f, []string{entry.Key}, wake)
	if err := f.store.Hub.Add(&w.watch); err != nil {
		return nil, err
	}
	a := &awaiting{watcher: w, entry: entry, bounded: bounded}
	a.probeHolder()
	return a, nil
}

// check reports whether the wait is over, and returns the entry after the claim. With errOwnerDead it returns the entry of the claim, which
// is over although the server still has it.
func (a *awaiting) check(ctx context.Context) (entry *Entry, over bool, err error) {
	for {
		switch now, err := a.watcher.news(); {
		case err != nil:
			return nil, true, err
		case now == nil:
			return a.ended(ctx)
		case now.State != Pending:
			entry, err := a.watcher.flight.found(ctx, now, a.entry.Claim)
			return entry, true, err
		default:
			a.entry = now
		}
		a.probeHolder()
	}
}

// ended is check when no change was received.
func (a *awaiting) ended(ctx context.Context) (*Entry, bool, error) {
	hub := a.watcher.flight.store.Hub
	switch {
	case ctx.Err() != nil:
		return nil, true, context.Cause(ctx)
	case a.probe.IsDead():
		return a.entry, true, errOwnerDead
	case !a.bounded:
		return nil, false, nil
	}
	if silence := hub.Silence(); silence > hub.MaxSilence() {
		return nil, true, fmt.Errorf("kvlock: wait for %q: %w: nothing heard for %s", a.entry.Key, kvlock.ErrUnavailable, silence)
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(kv.PollEvery, (*receiver)(a.watcher).Wake)
	} else {
		a.timer.Reset(kv.PollEvery)
	}
	return nil, false, nil
}

// probeHolder probes the process that holds the claim.
func (a *awaiting) probeHolder() {
	in, f := a.entry.in(), a.watcher.flight
	if a.probe.IsOf(in.member, in.server) {
		return
	}
	f.liveness.Unwatch(a.probe)
	if a.probe = nil; a.entry.State == Pending {
		a.probe = f.liveness.Watch(in.member, in.server, false, (*receiver)(a.watcher).Wake)
	}
}

// end ends the wait.
func (a *awaiting) end() {
	a.watcher.Close()
	a.watcher.flight.liveness.Unwatch(a.probe)
	if a.timer != nil {
		a.timer.Stop()
	}
}
