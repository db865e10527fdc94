package flight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// Outcome is how [Flight.Do] obtained its value.
type Outcome uint8

// The outcomes of Do.
const (
	// Cached: the value was there.
	Cached Outcome = iota + 1
	// Computed: the function of this call, or of a call in this process that it joined, was run.
	Computed
	// Coalesced: another call computed it while this one waited.
	Coalesced
	// Stale: the value is past its TTL, and no newer one is there yet.
	Stale
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Cached:
		return "cached"
	case Computed:
		return "computed"
	case Coalesced:
		return "coalesced"
	case Stale:
		return "stale"
	default:
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
}

// Result is what [Flight.Do] returns.
type Result struct {
	Age     time.Duration // since the value was stored; 0 when it was just computed
	Claim   string        // the id of the claim under which it was computed, in whatever process
	Elapsed time.Duration // how long the call took
	Job     string        // the DoOptions.Job of the call that computed it
	Key     string
	Memory  bool // it was in the memory of this process
	Outcome Outcome
	Owner   string // the instance that computed it
	Stored  bool   // the bucket has the value; false only with FailOpen, when JetStream was unreachable
	Value   []byte // shared between callers: not written to
}

// Do returns the value of key: from the bucket, or by running fn, or from a call that runs fn already, in this process
// or another. Of any number of concurrent calls, one runs fn. When the process of that call dies, another takes over as
// soon as probes find it gone: within 50 ms when both are on one server, or a sixth of a second after a wait of some
// seconds, and after five seconds otherwise; a process that waits for several others needs a quarter of a second for each
// of them. See Config.ProbeInterval. A process that is paused is given the claim's TTL.
//
// fn runs on a context of its own, with the values of the first caller's: a caller that gives up leaves it running for
// the others. That context ends when the last caller of this process has left, when the claim is lost (cause
// [kvlock.ErrLost]), and when the Flight closes; fn has to return then, because its callers wait until it does. An
// error of fn is not kept, unless DoOptions.FailureTTL says so: callers in this process get it as it is, callers in
// other processes get a [FailedError] with its text, and the next caller runs fn again. [ErrNotFound] is an answer, and
// not a failure. A panic becomes a [PanicError]. A cancelled computation is no failure: a waiter in another process
// takes over.
//
// With DoOptions.Refresh and DoOptions.Stale the present value is returned while fn runs in the background, on a
// context that ends with the claim and with the Flight, and not with its callers.
//
// fn may call Do for other keys, with the context that it is given. A call for a key whose function waits for that of fn,
// by calls with their contexts in this process, gets ErrRecursive, as does one for the key of fn itself. Functions in
// several processes that wait for each other's keys wait until their callers give up.
//
// One round trip for a cached value; three when the value is computed: read, claim, complete.
func (f *Flight) Do(ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts DoOptions) (Result, error) {
	if err := errors.Join(kv.CheckKey(key), opts.validate()); err != nil {
		return Result{}, fmt.Errorf("kvlock: do %q: %w", key, err)
	}
	start := time.Now()
	if result, ok := f.remembered(key, opts); ok {
		return f.returned(ctx, start, result, nil)
	}
	t := task{key: key, fn: fn, opts: opts}
	c, joined, err := f.join(ctx, key, opts, func(ctx context.Context) (Result, error) { return f.look(ctx, &t).run(ctx) })
	if opts.NoWait && errors.Is(err, ErrTaken) {
		result, err := f.meanwhile(ctx, t, err)
		return f.returned(ctx, start, result, err)
	}
	if err != nil {
		return f.returned(ctx, start, Result{Key: key}, err)
	}
	defer f.leave(ctx, c)
	result, err := f.outcome(ctx, c, joined)
	return f.returned(ctx, start, result, err)
}

// remembered returns the result that this process has in memory.
func (f *Flight) remembered(key string, opts DoOptions) (Result, bool) {
	slot, ok := f.memory.recall(key)
	if !ok || slot.State != Done || slot.NotFound || slot.Fingerprint != opts.Fingerprint || slot.Stale() || f.due(slot, opts) {
		return Result{}, false
	}
	return Result{
		Age: slot.valueAge(), Claim: slot.Claim, Job: slot.Job, Key: key, Memory: true, Outcome: Cached, Owner: slot.Owner, Stored: true,
		Value: slot.Value,
	}, true
}

// returned counts and reports the end of a call that began at start.
func (f *Flight) returned(ctx context.Context, start time.Time, result Result, err error) (Result, error) {
	elapsed := time.Since(start)
	f.counts.returned(result, err)
	f.emit(ctx, Event{
		Kind: EventReturned, Key: result.Key, Claim: result.Claim, Owner: result.Owner, Outcome: result.Outcome, Elapsed: elapsed, Err: err,
	})
	if err != nil {
		return Result{}, err
	}
	result.Elapsed = elapsed
	return result, nil
}

// outcome waits for the result of a computation that was started or joined.
func (f *Flight) outcome(ctx context.Context, c *call, joined bool) (Result, error) {
	start := time.Now()
	busy := c.busy // nil, and so never, for a caller that waits
	if joined {
		busy = nil
		f.tellJoined(ctx, c)
	}
	select { // all else is elsewhere: thousands may wait here, and each keeps what is on its stack
	case <-c.done:
		return f.shared(ctx, c, joined, start)
	case <-busy:
		return Result{Key: c.key}, f.heldBy(ctx, c)
	case <-ctx.Done():
		return Result{Key: c.key}, f.gaveUp(ctx, c, start)
	}
}

func (f *Flight) tellJoined(ctx context.Context, c *call) {
	f.emit(ctx, Event{Kind: EventWaiting, Key: c.key, Owner: f.store.Instance})
}

// heldBy returns the error of a caller that does not wait for another process.
func (f *Flight) heldBy(ctx context.Context, c *call) error {
	f.emit(ctx, c.holder.event(EventHeld))
	return &TakenError{Slot: *c.holder}
}

// shared returns the result of a computation to one of its callers.
func (f *Flight) shared(ctx context.Context, c *call, joined bool, start time.Time) (Result, error) {
	if joined {
		f.emit(ctx, Event{
			Kind: EventCoalesced, Key: c.key, Claim: c.result.Claim, Owner: f.store.Instance, Outcome: c.result.Outcome,
			Elapsed: time.Since(start), Err: c.err,
		})
	}
	result := c.result
	result.Key = c.key
	return result, c.err
}

// gaveUp returns the error of a caller whose context ended while it waited.
func (f *Flight) gaveUp(ctx context.Context, c *call, start time.Time) error {
	err := fmt.Errorf("kvlock: wait for %q: %w", c.key, context.Cause(ctx))
	f.emit(ctx, Event{Kind: EventWaitTimeout, Key: c.key, Elapsed: time.Since(start), Err: err})
	return err
}

// meanwhile is Do for a caller that does not wait for the computation that runs in this process.
func (f *Flight) meanwhile(ctx context.Context, t task, busy error) (Result, error) {
	slot, err := f.Get(ctx, t.key)
	if err == nil {
		err = slot.mismatch(t.opts.Fingerprint)
	}
	if err != nil {
		return Result{Key: t.key}, err
	}
	if r, ok, err := f.offer(ctx, &wait{}, slot, t); ok {
		return r, err
	}
	f.emit(ctx, Event{Kind: EventHeld, Key: t.key, Owner: f.store.Instance})
	return Result{Key: t.key}, busy
}

// task is the work that a call wants done for a key.
type task struct {
	key   string
	fn    func(context.Context) ([]byte, error)
	opts  DoOptions
	waits func() // called, if not nil, when the call begins to wait for another process
}

// decision is Do across processes, after the first read of the key: claim it or wait, until there is a value or a failure.
// It is not on the stack, and a waiter is in no function that needs much of that: thousands may wait at once.
type decision struct {
	task

	flight *Flight
	wait   wait
	slot   Slot  // what is known of the key
	err    error // why nothing is
	gone   bool  // the holder of the claim in slot is gone
	lost   bool  // our own claim was lost: another process took over, or the key was invalidated

	result Result // with err, when all is decided
}

// deciding begins with slot, or with why it could not be read.
//
//go:noinline // see decision
func (f *Flight) deciding(t *task, slot *Slot, err error) *decision {
	d := &decision{flight: f}
	d.task, d.slot, d.err = *t, *slot, err
	return d
}

// look begins with reading the key.
//
//go:noinline // see decision
func (f *Flight) look(ctx context.Context, t *task) *decision {
	d := &decision{flight: f}
	d.task = *t
	d.slot, d.err = f.Get(ctx, t.key)
	return d
}

func (d *decision) run(ctx context.Context) (Result, error) {
	for d.waits(ctx) {
		d.awaitClaim(ctx)
	}
	return d.result, d.err
}

// waits takes the next step without waiting, and reports whether the claim that slot shows has to be waited for. If
// not, the decision is made.
func (d *decision) waits(ctx context.Context) bool {
	f := d.flight
	for {
		if claims, decided := d.ready(ctx); decided {
			return false
		} else if !claims {
			return true
		}
		claim, err := f.claim(ctx, d.slot, d.opts)
		var taken *TakenError
		switch {
		case errors.As(err, &taken):
			d.slot = taken.Slot
			d.wait.outcome = Coalesced
			continue
		case err != nil:
			d.err = err
			continue
		}
		d.wait.tellTakeOver(ctx, claim, d.slot)
		d.result, d.err = f.compute(ctx, claim, d.fn, d.opts)
		if !errors.Is(d.err, kvlock.ErrLost) || ctx.Err() != nil {
			return false
		}
		d.slot, d.err, d.result, d.lost = Slot{Key: d.key}, nil, Result{}, true
		return true
	}
}

// ready reports whether the key is to be claimed now, and whether the decision is made.
func (d *decision) ready(ctx context.Context) (claims, decided bool) {
	f := d.flight
	if d.gone {
		d.gone = false
		return true, false
	}
	if d.err != nil {
		d.result, d.err = f.degrade(ctx, d.key, d.fn, d.opts, d.err)
		return false, true
	}
	if d.err = d.slot.mismatch(d.opts.Fingerprint); d.err != nil {
		return false, true
	}
	if d.result, decided, d.err = f.offer(ctx, &d.wait, d.slot, d.task); decided {
		return false, true
	}
	switch d.slot.State {
	case Failed:
		d.err = f.refused(ctx, d.slot, d.wait)
		return false, true
	case Pending:
		return false, false
	case Done: // too old
		if d.slot.staleValue().FailedClaim != "" && d.slot.staleValue().FailedClaim == d.wait.holder.Claim {
			d.err = f.refused(ctx, d.slot, d.wait)
			return false, true
		}
	case Absent:
	}
	return true, false
}

// claim claims the key as slot shows it: held by a process that is gone, done and to be computed anew, or absent.
func (f *Flight) claim(ctx context.Context, slot Slot, opts DoOptions) (*Claim, error) {
	switch slot.State {
	case Pending:
		return f.takeOver(ctx, slot, opts)
	case Done:
		return f.replace(ctx, slot, opts)
	case Absent, Failed:
	}
	return f.Begin(ctx, slot.Key, BeginOptions{
		Fingerprint: opts.Fingerprint, Job: opts.Job, Seen: slot, TTL: opts.ClaimTTL,
	})
}

// degrade ends a Do that JetStream did not answer: by computing without JetStream if the caller asked for that.
func (f *Flight) degrade(
	ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts DoOptions, cause error,
) (Result, error) {
	if !opts.FailOpen || !errors.Is(cause, kvlock.ErrUnavailable) || ctx.Err() != nil {
		return Result{}, cause
	}
	f.store.Log.WarnContext(ctx, "kvlock: computing without coordination", "key", key, "error", cause)
	value, err := protect(ctx, key, fn)
	if err != nil {
		return Result{}, err
	}
	return Result{Job: opts.Job, Key: key, Outcome: Computed, Owner: f.store.Instance, Value: value}, nil
}

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

// tellWaiting emits that the waiting begins.
func (d *decision) tellWaiting(ctx context.Context) {
	if d.task.waits != nil {
		d.task.waits()
	}
	d.wait.outcome, d.wait.since, d.wait.holder = Coalesced, time.Now(), d.slot
	if n := nested(ctx); n != nil && n.call.busy != nil {
		n.call.leaveIt(d.slot)
	}
	d.flight.emit(ctx, d.slot.event(EventWaiting))
}

// waited records how the waiting ended.
func (d *decision) waited(now *Slot, err error) {
	d.gone, d.err = errors.Is(err, errOwnerDead) && !d.lost, err
	d.lost = false
	switch {
	case err == nil:
		d.slot = *now
	case errors.Is(err, errOwnerDead):
		d.slot, d.err = *now, nil
	default:
		d.slot = Slot{}
	}
}

// tellTakeOver emits that claim replaces one that this call waited for and whose holder did not end it: slot shows that
// it is still pending, or that it expired.
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
