package flight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// Outcome is the way in which [Flight.Do] obtained its value.
type Outcome uint8

// The outcomes of Do.
const (
	// Cached: the value was there.
	Cached Outcome = iota + 1
	// Computed: the function of this call, or of a call in this process that it joined, was run.
	Computed
	// Coalesced: another call computed the value while this call waited.
	Coalesced
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	names := [...]string{Cached: "cached", Computed: "computed", Coalesced: "coalesced"}
	if o >= Cached && int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Result is the result of [Flight.Do].
type Result struct {
	Age     time.Duration // the time since the value was stored; 0 when it was just computed
	Claim   string        // the id of the claim under which it was computed, in this process or another
	Elapsed time.Duration // how long the call took
	Job     string        // the DoOptions.Job of the call that computed it
	Key     string
	Memory  bool // the value was in the memory of this process
	Outcome Outcome
	Owner   string // the instance that computed the value
	Stored  bool   // the bucket has the value; false only with FailOpen, when JetStream was unreachable
	Value   []byte // shared between callers: not written to
}

// result returns the result in an entry that is Done.
func (s *Entry) result(outcome Outcome) Result {
	return Result{
		Age: s.Age(), Claim: s.Claim, Job: s.Job, Key: s.Key, Outcome: outcome, Owner: s.Owner, Stored: true, Value: s.Value,
	}
}

// Do returns the value of key: from the bucket, or by running fn, or from a call that runs fn already, in this process or another. Of any
// number of concurrent calls, one runs fn. When the process of that call dies, another takes over as soon as probes find it gone. That
// takes 50 ms when both processes are on one server, or a sixth of a second after a wait of some seconds. It takes a second when they are
// on different servers, and five seconds when the owner's server cannot be reached or was restarted. A process that waits for several
// others needs a quarter of a second for each of them. See Config.ProbeInterval. A paused process is given the claim's TTL.
//
// fn runs on a separate context, with the values of the first caller's: a caller that gives up leaves it running for
// the others. That context ends when the last caller of this process has left, when the claim is lost (cause
// [kvlock.ErrLost]), and when the Flight closes. fn has to return then: its callers wait until it does. An error of fn is not kept, unless
// DoOptions.FailureTTL says so: callers in this process get it as it is, callers in other processes get a [FailedError] with its text, and
// the next caller runs fn again. A panic becomes a [PanicError]. A cancelled computation is not a failure: a waiter in another process
// takes over.
//
// fn may call Do for other keys, with its own context. A call for the key of fn gets ErrRecursive. So does a call for a key whose function
// waits for the key of fn, if all these calls are in this process and have their functions' contexts. Functions in several processes that
// wait for each other's keys wait until their callers give up.
//
// One round trip for a cached value; three when the value is computed: read, claim, complete.
func (f *Flight) Do(
	ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts DoOptions,
) (result Result, err error) {
	if err := errors.Join(kv.CheckKey(key), opts.validate()); err != nil {
		return Result{}, fmt.Errorf("kvlock: do %s: %w", redact.Quote(key), err)
	}
	start := time.Now()
	// Results in memory take the short way: no computation to join, and no allocation.
	if f.memory == nil || !f.remembered(key, &opts, &result) {
		err = f.obtain(ctx, key, fn, &opts, &result)
	}
	err = f.returned(ctx, start, &result, err)
	return result, err
}

// remembered takes the result that this process has in memory, and reports whether there is one.
func (f *Flight) remembered(key string, opts *DoOptions, r *Result) bool {
	entry, ok := f.memory.recall(key)
	if !ok || entry.State != Done || entry.Fingerprint != opts.Fingerprint {
		return false
	}
	*r = entry.result(Cached)
	r.Memory = true
	return true
}

// returned counts and reports the end of a call that began at start.
func (f *Flight) returned(ctx context.Context, start time.Time, r *Result, err error) error {
	elapsed := time.Since(start)
	switch {
	case err != nil:
		f.counts.errors.Add(1)
	// The memory counts its answers, for each core separately.
	case !r.Memory:
		f.counts.outcomes[r.Outcome].Add(1)
	}
	f.emit(ctx, Event{
		Kind: EventReturned, Key: r.Key, Claim: r.Claim, Owner: r.Owner, Outcome: r.Outcome, Elapsed: elapsed, Err: err,
	})
	if err != nil {
		*r = Result{}
		return err
	}
	r.Elapsed = elapsed
	return nil
}

// obtain is Do without the memory. It calls no deeper than it must: thousands of goroutines may wait there, and each
// keeps the stack that it needed once.
func (f *Flight) obtain(
	ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts *DoOptions, r *Result,
) error {
	r.Key = key
	// The functions in which this call runs, if it is a call of Do within one: none of them may wait for itself.
	outer, _ := ctx.Value(callKey{}).(*nesting)
	c, joined, err := f.join(ctx, outer, key, fn, opts)
	if err != nil {
		return err
	}
	defer f.leave(outer, c)
	start := time.Now()
	if joined {
		f.tellJoined(ctx, c)
	}
	select {
	case <-c.done:
		return f.shared(ctx, c, joined, start, r)
	case <-ctx.Done():
		return f.gaveUp(ctx, c, start)
	}
}

//go:noinline // see obtain
func (f *Flight) tellJoined(ctx context.Context, c *computation) {
	f.counts.waits.Add(1)
	f.emit(ctx, Event{Kind: EventWaiting, Key: c.key, Owner: f.store.Instance})
}

// shared returns the result of a computation to one of its callers.
//
//go:noinline // see obtain
func (f *Flight) shared(ctx context.Context, c *computation, joined bool, start time.Time, r *Result) error {
	*r = c.decision.result // of the goroutine in proceed, which has ended
	if joined {
		f.emit(ctx, Event{
			Kind: EventCoalesced, Key: c.key, Claim: r.Claim, Owner: f.store.Instance, Outcome: r.Outcome,
			Elapsed: time.Since(start), Err: c.decision.err,
		})
	}
	r.Key = c.key
	return c.decision.err
}

// gaveUp returns the error of a caller whose context ended while it waited.
//
//go:noinline // see obtain
func (f *Flight) gaveUp(ctx context.Context, c *computation, start time.Time) error {
	err := fmt.Errorf("kvlock: wait for %q: %w", c.key, context.Cause(ctx))
	f.emit(ctx, Event{Kind: EventWaitTimeout, Key: c.key, Elapsed: time.Since(start), Err: err})
	return err
}

func failureReason(err error) string {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return "panic: " + redact.Value(p.Value)
	}
	return err.Error()
}

// errExited is the failure of a function that ended its goroutine instead of returning.
var errExited = errors.New("kvlock: function called runtime.Goexit")

// protect runs fn and turns a panic, and an end of its goroutine, into an error. It runs fn on a separate goroutine because
// runtime.Goexit cannot be stopped, and would leave every waiter hanging.
func protect(ctx context.Context, key string, fn func(context.Context) ([]byte, error)) ([]byte, error) {
	var value []byte
	err := errExited
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				value, err = nil, &PanicError{Key: key, Value: p, Stack: debug.Stack()}
			}
		}()
		value, err = fn(ctx)
	}()
	<-done
	return value, err
}

// computation is a run of a function in this process, joined by every caller of the key.
type computation struct {
	key      string
	ctx      context.Context
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when it has ended
	decision *decision     // owned by the goroutine in proceed, but for its options; read by callers after done
	state    atomic.Int32  // of that goroutine

	// Guarded by Flight.mu.
	callers int
	waits   map[*computation]int // those for which its function waits, with the number of waiting calls
}

// The states of a computation's goroutine.
const (
	parked int32 = iota // it has no goroutine
	running
	woken // running, and wake was called
)

// wake makes the computation proceed.
func (c *computation) wake() {
	if c.state.Swap(woken) == parked {
		go c.proceed()
	}
}

// proceed continues the computation until it has ended, or has nothing to do before wake is called. It ends the computation even if a
// value of the user, which the context holds, panics or ends the goroutine: the claim then stays until its TTL.
func (c *computation) proceed() {
	waiting, cut := false, errExited
	defer func() {
		if v := recover(); v != nil {
			cut = &PanicError{Key: c.key, Value: v, Stack: debug.Stack()}
		}
		if !waiting {
			c.end(cut)
		}
	}()
	for !waiting {
		c.state.Store(running) // before the step: a wake from here on is not lost
		if c.decision.step(c.ctx, c.wake) {
			break
		}
		waiting = c.park()
	}
	cut = nil
}

// end ends the computation with its decision, or with the error cut, if that is not nil.
func (c *computation) end(cut error) {
	d := c.decision
	if cut != nil {
		d.result, d.err = Result{}, cut
		if d.awaiting != nil {
			d.awaiting.end()
		}
	}
	f := d.flight
	c.cancel(nil)
	// Before done: a caller that has the result and calls Do again must not join this computation.
	f.mu.Lock()
	if f.local[c.key] == c {
		delete(f.local, c.key)
	}
	f.mu.Unlock()
	close(c.done)
	f.work.Done()
}

// park reports whether the goroutine may end, because wake was not called since its last look.
func (c *computation) park() bool { return c.state.CompareAndSwap(running, parked) }

// stop ends the computation.
func (c *computation) stop(cause error) {
	c.cancel(cause)
	c.wake()
}

// callKey is the context key of the computations in which a function runs, innermost first.
type callKey struct{}

// nesting is a computation within another.
type nesting struct {
	call  *computation
	outer *nesting
}

// each yields the computations, innermost first.
func (n *nesting) each(yield func(*computation) bool) {
	for ; n != nil; n = n.outer {
		if !yield(n.call) {
			return
		}
	}
}

// count adds calls to the number of calls by which the functions of these computations wait for c. A negative number ends waits. The
// caller holds Flight.mu.
func (n *nesting) count(c *computation, calls int) {
	for outer := range n.each {
		if outer.waits == nil {
			outer.waits = map[*computation]int{}
		}
		if outer.waits[c] += calls; outer.waits[c] <= 0 {
			delete(outer.waits, c)
		}
	}
}

// circle returns the keys by which c waits for one of these computations: the key of c first, the key of that computation last. It returns
// nil if c waits for none of them. The caller holds Flight.mu.
func (n *nesting) circle(c *computation) []string {
	seen := map[*computation]bool{}
	var to func(c *computation) []string
	to = func(c *computation) []string {
		for outer := range n.each {
			if outer == c {
				return []string{strconv.Quote(c.key)}
			}
		}
		seen[c] = true
		for next := range c.waits {
			if seen[next] {
				continue
			}
			if keys := to(next); keys != nil {
				return append([]string{strconv.Quote(c.key)}, keys...)
			}
		}
		return nil
	}
	if n == nil {
		return nil
	}
	return to(c)
}

// errNobodyWaits is the cause of a computation's end when all its callers have gone.
var errNobodyWaits = errors.New("kvlock: nobody waits for the result any more")

// join joins the computation of the key that runs in this process, or starts one. outer has the computations to which ctx belongs.
func (f *Flight) join(
	ctx context.Context, outer *nesting, key string, fn func(context.Context) ([]byte, error), opts *DoOptions,
) (c *computation, joined bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := context.Cause(f.store.Closing); err != nil {
		return nil, false, err
	}
	if c := f.local[key]; c != nil {
		if err := f.refuses(c, outer, opts.Fingerprint); err != nil {
			return nil, false, err
		}
		c.callers++
		outer.count(c, 1)
		return c, true, nil
	}
	d := &decision{flight: f, key: key, fn: fn, opts: *opts}
	c = &computation{key: key, decision: d, callers: 1, done: make(chan struct{})}
	if outer != nil {
		outer.count(c, 1)
	}
	// The first caller may leave before the others: the computation ends with the last of them.
	own := context.WithValue(context.WithoutCancel(ctx), callKey{}, &nesting{call: c, outer: outer})
	c.ctx, c.cancel = context.WithCancelCause(own)
	c.state.Store(running)
	f.local[key] = c
	f.work.Add(1)
	go c.proceed()
	return c, false, nil
}

// refuses returns the error of a caller within other computations that cannot join c, or nil. The caller holds Flight.mu.
//
//go:noinline // see obtain
func (f *Flight) refuses(c *computation, within *nesting, fingerprint string) error {
	circle := within.circle(c)
	switch {
	case circle != nil:
		return fmt.Errorf("%w: %s", ErrRecursive, strings.Join(circle, ", which waits for "))
	case c.decision.opts.Fingerprint != fingerprint:
		return fmt.Errorf("%w: key %q is being computed with fingerprint %s, not %s",
			kvlock.ErrMismatch, c.key, redact.Quote(c.decision.opts.Fingerprint), redact.Quote(fingerprint))
	default:
		return nil
	}
}

// leave ends the computation when its last caller has left; a new caller starts another. outer is that of the join.
func (f *Flight) leave(outer *nesting, c *computation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if outer != nil {
		outer.count(c, -1)
	}
	c.callers--
	// A computation that is not in local has ended by itself.
	if c.callers > 0 || f.local[c.key] != c {
		return
	}
	// A caller that comes while this computation ends must not get its cancellation.
	delete(f.local, c.key)
	c.stop(errNobodyWaits)
}

// decision is Do across processes, after the first read of the key: claim it or wait, until there is a value or a failure. It has no
// goroutine while it waits: thousands may wait.
type decision struct {
	// Set at the start.
	flight *Flight
	key    string
	fn     func(context.Context) ([]byte, error)
	opts   DoOptions

	// Where it stands.
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
func (d *decision) step(ctx context.Context, wake func()) bool {
	// The first read is in this goroutine, so that callers wait with small stacks.
	if d.entry == nil {
		entry, err := d.flight.Get(ctx, d.key)
		d.entry, d.err = &entry, err
	}
	for {
		if d.awaiting == nil {
			if d.decide(ctx) == decided {
				return true
			}
			d.outcome, d.since, d.holder = Coalesced, time.Now(), d.entry
			d.flight.counts.waits.Add(1)
			d.flight.emit(ctx, d.entry.event(EventWaiting))
			var err error
			if d.awaiting, err = d.flight.startWait(d.entry, d.opts.FailOpen, wake); err != nil {
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

// turn is what a decision does next.
type turn uint8

const (
	toClaim turn = iota // claim the key
	toWait              // wait for the end of the claim in entry
	decided             // the result or the error is there
)

// decide makes the decision, or finds that it has to wait for the claim in entry.
func (d *decision) decide(ctx context.Context) turn {
	for {
		next := d.ready(ctx)
		if next != toClaim {
			return next
		}
		var claim *Claim
		if d.entry.State == Pending { // of a process that is gone
			claim, d.err = d.flight.takeOver(ctx, *d.entry, d.opts)
		} else {
			claim, d.err = d.flight.Begin(ctx, d.key, BeginOptions{
				Fingerprint: d.opts.Fingerprint, Job: d.opts.Job, Seen: *d.entry, TTL: d.opts.ClaimTTL,
			})
		}
		if d.err != nil {
			// Another call may have been faster: then its entry decides, and the value that comes of it is not ours.
			if taken, ok := errors.AsType[*TakenError](d.err); ok {
				d.entry, d.err, d.outcome = &taken.Entry, nil, Coalesced
			}
			continue
		}
		// The claim replaces one that its holder did not end, if this call waited for it or found it gone.
		if d.holder != nil || d.entry.State == Pending {
			d.tellTakeOver(ctx, claim)
		}
		d.result, d.err = d.compute(ctx, claim)
		if !d.lost || ctx.Err() != nil {
			return decided
		}
		// Another process has the claim now, or the key was invalidated. The lost entry does not tell which: the wait begins with a read.
		d.entry, d.err, d.result = &Entry{Key: d.key}, nil, Result{}
		return toWait
	}
}

// ready returns what entry, or the error in its place, asks for.
func (d *decision) ready(ctx context.Context) turn {
	if d.gone { // the claim is pending, and its owner will not end it
		d.gone = false
		return toClaim
	}
	if d.err != nil {
		d.result, d.err = d.degrade(ctx, d.err)
		return decided
	}
	// Before the state: neither a result nor a wait for one is of use to a caller with another input.
	if d.err = d.entry.mismatch(d.opts.Fingerprint); d.err != nil {
		return decided
	}
	switch d.entry.State {
	case Done:
		d.tellCoalesced(ctx, nil)
		d.result = d.entry.result(cmp.Or(d.outcome, Cached))
		return decided
	case Failed:
		d.err = &FailedError{Key: d.key, Reason: d.entry.Reason, Owner: d.entry.Owner}
		d.tellCoalesced(ctx, d.err)
		return decided
	case Pending:
		return toWait
	default:
		return toClaim
	}
}

// tellCoalesced emits EventCoalesced if the call waited for the result, or the failure, in entry.
func (d *decision) tellCoalesced(ctx context.Context, failure error) {
	if d.holder == nil {
		return
	}
	e := d.entry.event(EventCoalesced)
	e.Elapsed, e.Err = time.Since(d.since), failure
	if failure == nil {
		e.Outcome = Coalesced
	}
	d.flight.emit(ctx, e)
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
	d.flight.counts.takeOvers.Add(1)
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

// startWait begins a wait for the claim in entry. wake is called when check may find an end.
func (f *Flight) startWait(entry *Entry, bounded bool, wake func()) (*awaiting, error) {
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
			entry, err := a.watcher.flight.forWaiters(ctx, now, a.entry.Claim)
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

// compute runs the function under the claim and ends the claim with its result.
func (d *decision) compute(ctx context.Context, claim *Claim) (result Result, err error) {
	held, stop := claim.AutoRenew(ctx, d.opts.ClaimTTL)
	value, err := protect(held, claim.key, d.fn)
	// Before stop, which ends held: the claim was lost only if held ended by itself.
	lost := held.Err() != nil && ctx.Err() == nil
	cause := context.Cause(held)
	stop()
	// A caller must not cancel the end of the claim: others wait for it.
	end := context.WithoutCancel(ctx)
	// A value is stored even if the claim seems lost: only the server knows.
	if err == nil {
		result, err = d.complete(end, claim, value)
		d.lost = errors.Is(err, kvlock.ErrLost)
		return result, err
	}
	failure := redact.Safe(err) // callers get err as it is; here its methods might panic
	if errors.As(failure, new(*PanicError)) {
		claim.tell(ctx, EventPanic, err)
	}
	switch {
	// decide waits for the process that has the claim now.
	case lost:
		d.lost = true
		return Result{}, cause
	// A cancelled computation is no failure: a waiter in another process takes over.
	case ctx.Err() != nil:
		claim.reportStaying(end, claim.Release(end))
		return Result{}, err
	default:
		claim.reportStaying(end, claim.Fail(end, failureReason(failure), d.failureTTL(err)))
		return Result{}, err
	}
}

// complete stores the value. If the value can never be stored, the waiters in other processes get a failure.
func (d *decision) complete(ctx context.Context, claim *Claim, value []byte) (Result, error) {
	f, opts := d.flight, &d.opts
	result := Result{Claim: claim.id, Job: opts.Job, Key: claim.key, Outcome: Computed, Owner: f.store.Instance, Value: value}
	entry, err := claim.Complete(ctx, value, jitter(cmp.Or(opts.TTL, f.cfg.ResultTTL), opts.Jitter))
	switch {
	case err == nil:
		result.Job, result.Owner, result.Stored = entry.Job, entry.Owner, true
		return result, nil
	// decide waits for the process that has the claim now.
	case errors.Is(err, kvlock.ErrLost):
		return Result{}, err
	// Nobody can be told now: the claim expires.
	case errors.Is(err, kvlock.ErrUnavailable):
	default:
		claim.reportStaying(ctx, claim.Fail(ctx, err.Error(), 0))
	}
	if opts.FailOpen && errors.Is(err, kvlock.ErrUnavailable) {
		f.store.Log.WarnContext(ctx, "kvlock: result is not stored", "key", claim.key, "claim", claim.id, "error", err)
		return result, nil
	}
	return Result{}, err
}
