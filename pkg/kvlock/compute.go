package kvlock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// call is a computation in this process, joined by every caller of the key.
type call struct {
	key         string
	fingerprint string
	cancel      context.CancelCauseFunc
	callers     int  // guarded by Flight.mu
	keep        bool // guarded by Flight.mu: it runs on when its callers have gone
	done        chan struct{}
	result      Result
	err         error

	busy   chan struct{} // closed when somebody else is waited for; nil if who started it waits, too
	holder *Slot         // who that is, then
}

// leaveIt tells who started the computation and does not want to wait that it does.
func (c *call) leaveIt(holder Slot) {
	select {
	case <-c.busy:
	default:
		c.holder = &holder
		close(c.busy)
	}
}

// callKey is the context key of the computations that a function runs in, innermost first.
type callKey struct{}

// nesting is a computation within another.
type nesting struct {
	call  *call
	outer *nesting
}

// within says that ctx is of the computation c, or of one that it waits for.
func within(ctx context.Context, c *call) bool {
	n, _ := ctx.Value(callKey{}).(*nesting)
	for ; n != nil; n = n.outer {
		if n.call == c {
			return true
		}
	}
	return false
}

// errNobodyWaits is the cause of a computation's end when all its callers have gone.
var errNobodyWaits = errors.New("kvlock: nobody waits for the result any more")

// join finds the computation of key that runs in this process, or starts it with run.
func (f *Flight) join(
	ctx context.Context, key string, opts DoOptions, run func(context.Context) (Result, error),
) (c *call, joined bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := context.Cause(f.ending); err != nil {
		return nil, false, err
	}
	if c := f.local[key]; c != nil {
		switch {
		case opts.NoWait:
			busy := Slot{Key: key, State: Pending, Owner: f.instance, Fingerprint: c.fingerprint}
			return nil, false, taken(busy, opts.Fingerprint)
		case within(ctx, c):
			return nil, false, fmt.Errorf("%w: %q", ErrRecursive, key)
		case c.fingerprint != opts.Fingerprint:
			return nil, false, fmt.Errorf("%w: key %q is being computed with fingerprint %q, not %q",
				ErrMismatch, key, c.fingerprint, opts.Fingerprint)
		}
		c.callers++
		c.keep = c.keep || opts.KeepRunning
		return c, true, nil
	}
	c = &call{key: key, fingerprint: opts.Fingerprint, callers: 1, keep: opts.KeepRunning, done: make(chan struct{})}
	if opts.NoWait {
		c.busy = make(chan struct{})
	}
	outer, _ := ctx.Value(callKey{}).(*nesting)
	own := context.WithValue(context.WithoutCancel(ctx), callKey{}, &nesting{call: c, outer: outer})
	own, c.cancel = context.WithCancelCause(own)
	stop := context.AfterFunc(f.ending, func() { c.cancel(context.Cause(f.ending)) })
	f.local[key] = c
	f.work.Go(func() {
		defer c.cancel(nil)
		defer stop()
		c.result, c.err = run(own)
		f.forget(c)
		close(c.done)
	})
	return c, false, nil
}

// leave ends the computation when its last caller has gone; a new caller starts another.
func (f *Flight) leave(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.callers--
	if c.callers > 0 || c.keep {
		return
	}
	if f.local[c.key] == c {
		delete(f.local, c.key)
	}
	c.cancel(errNobodyWaits)
}

func (f *Flight) forget(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.local[c.key] == c {
		delete(f.local, c.key)
	}
}

// compute runs fn under the claim and ends the claim with what came of it.
func (f *Flight) compute(ctx context.Context, claim *Claim, fn func(context.Context) ([]byte, error), opts DoOptions) (Result, error) {
	held, stop := claim.Keep(ctx, opts.ClaimTTL)
	value, err := protect(held, claim.key, fn)
	lost := held.Err() != nil && ctx.Err() == nil
	cause := context.Cause(held)
	stop()
	if err != nil && errors.As(err, new(*PanicError)) {
		claim.tell(ctx, EventPanic, err)
	}
	// Ending the claim is not the caller's to cancel: others wait for it.
	end := context.WithoutCancel(ctx)
	switch {
	case err == nil: // though the claim may be lost: only the server knows
		return f.complete(end, claim, value, opts)
	case lost:
		return Result{}, cause
	case ctx.Err() != nil:
		f.reportStaying(end, claim, claim.Release(end))
		return Result{}, err
	case errors.Is(err, ErrNotFound):
		f.reportStaying(end, claim, claim.nothing(end, err.Error(), jitter(opts.NegativeTTL, opts.Jitter)))
		return Result{}, &NotFoundError{Key: claim.key, Reason: err.Error(), Owner: f.instance, err: err}
	default:
		f.reportStaying(end, claim, claim.Fail(end, failureReason(err), opts.failureTTL(err)))
		return Result{}, err
	}
}

// complete stores the value. One that cannot be stored, ever, is a failure to those who wait for it elsewhere.
func (f *Flight) complete(ctx context.Context, claim *Claim, value []byte, opts DoOptions) (Result, error) {
	result := Result{Claim: claim.id, Job: opts.Job, Key: claim.key, Outcome: Computed, Owner: f.instance, Value: value}
	slot, err := claim.complete(ctx, value, opts.resultTTL(value, f.cfg.ResultTTL), opts.Stale)
	switch {
	case err == nil:
		result.Job, result.Owner, result.Stored = slot.Job, slot.Owner, true
		return result, nil
	case errors.Is(err, ErrLost):
		return Result{}, err
	case errors.Is(err, ErrUnavailable):
	default:
		f.reportStaying(ctx, claim, claim.Fail(ctx, err.Error(), 0))
	}
	if opts.FailOpen && errors.Is(err, ErrUnavailable) {
		f.log.WarnContext(ctx, "kvlock: result is not stored", "key", claim.key, "claim", claim.id, "error", err)
		return result, nil
	}
	return Result{}, err
}

// reportStaying reports a claim that could not be ended.
func (f *Flight) reportStaying(ctx context.Context, claim *Claim, err error) {
	if err != nil && !errors.Is(err, ErrLost) {
		f.log.WarnContext(ctx, "kvlock: claim stays until it expires", "key", claim.key, "claim", claim.id, "error", err)
	}
}

func failureReason(err error) string {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return fmt.Sprintf("panic: %v", p.Value)
	}
	return err.Error()
}

// errExited is the failure of a function that ended its goroutine instead of returning.
var errExited = errors.New("kvlock: function called runtime.Goexit")

// protect runs fn and turns a panic, and an end of its goroutine, into an error. The goroutine is of its own because
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
