package kvlock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Outcome is how [Flight.Do] came by its value.
type Outcome uint8

// The outcomes of Do.
const (
	// Cached: the value was there.
	Cached Outcome = iota + 1
	// Computed: the function of this call, or of a call in this process that it joined, was run.
	Computed
	// Coalesced: somebody else computed it while this call waited.
	Coalesced
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
	default:
		return fmt.Sprintf("Outcome(%d)", uint8(o))
	}
}

// Result is what [Flight.Do] returns.
type Result struct {
	Age     time.Duration // since the value was stored; 0 when it was just computed
	Elapsed time.Duration // what the call took
	Key     string
	Outcome Outcome
	Owner   string // the instance that computed it
	Stored  bool   // others find the value; false only with FailOpen, when JetStream was unreachable
	Value   []byte // shared between callers: not to be written to
}

// DoOptions are the choices of one [Flight.Do]. The zero value is good.
type DoOptions struct {
	// ClaimTTL is after how long others take over when this process dies. Defaults to Config.ClaimTTL.
	ClaimTTL time.Duration

	// FailOpen computes the value although JetStream is unreachable; it is then not stored, and others may compute it
	// too. Defaults to false: ErrUnavailable is returned.
	FailOpen bool

	// Fingerprint tells inputs apart that share a key. Defaults to none.
	Fingerprint string

	// KeepRunning lets the function finish when every caller in this process has gone. Defaults to false: its context
	// is cancelled and the claim given back.
	KeepRunning bool

	// TTL is how long the result is kept. Defaults to Config.ResultTTL.
	TTL time.Duration
}

// call is a computation in this process, joined by every caller of the key.
type call struct {
	key         string
	fingerprint string
	cancel      context.CancelCauseFunc
	callers     int // guarded by Flight.mu
	done        chan struct{}
	result      Result
	err         error
}

// errNobodyWaits is the cause of a computation's end when all its callers have gone.
var errNobodyWaits = errors.New("kvlock: nobody waits for the result any more")

// Do returns the value of key: from the bucket, or by running fn, or from whoever runs it already, in this process or
// another. However many call at once, one runs fn. When its process dies, another takes over after the claim's TTL.
//
// fn runs on a context of its own, with the values of the first caller's: a caller that gives up leaves it running for
// the others. It ends when the last caller of this process is gone, when the claim is lost (cause [ErrLost]), and when
// the Flight closes. An error of fn is not kept: callers in this process get it as it is, those in others get a
// [FailedError] with its text, and the next caller runs fn again. A panic becomes a [PanicError].
//
// One round trip for a cached value; three when the value is computed: read, claim, complete.
func (f *Flight) Do(ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts DoOptions) (Result, error) {
	start := time.Now()
	if err := checkKey(key); err != nil {
		return Result{}, err
	}
	c, err := f.join(ctx, key, fn, opts)
	if err != nil {
		return Result{}, err
	}
	defer f.leave(c, opts.KeepRunning)
	select {
	case <-c.done:
		result := c.result
		result.Elapsed = time.Since(start)
		return result, c.err
	case <-ctx.Done():
		return Result{}, fmt.Errorf("kvlock: wait for %q: %w", key, context.Cause(ctx))
	}
}

// join finds the computation of key that runs in this process, or starts it.
func (f *Flight) join(ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts DoOptions) (*call, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := context.Cause(f.ending); err != nil {
		return nil, err
	}
	if c := f.local[key]; c != nil {
		if c.fingerprint != opts.Fingerprint {
			return nil, fmt.Errorf("%w: key %q is being computed with fingerprint %q, not %q", ErrMismatch, key, c.fingerprint, opts.Fingerprint)
		}
		c.callers++
		return c, nil
	}
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(f.ending, func() { cancel(context.Cause(f.ending)) })
	c := &call{key: key, fingerprint: opts.Fingerprint, cancel: cancel, callers: 1, done: make(chan struct{})}
	f.local[key] = c
	f.work.Go(func() {
		defer cancel(nil)
		defer stop()
		c.result, c.err = f.do(run, key, fn, opts)
		f.forget(c)
		close(c.done)
	})
	return c, nil
}

// leave ends the computation when its last caller has gone; a new caller starts another.
func (f *Flight) leave(c *call, keepRunning bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.callers--
	if c.callers > 0 || keepRunning {
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

// do is Do across processes: read, then claim or wait, until there is a value or a failure.
func (f *Flight) do(ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts DoOptions) (Result, error) {
	slot, err := f.Get(ctx, key)
	outcome := Cached
	for {
		if err != nil {
			return f.degrade(ctx, key, fn, opts, err)
		}
		if err := slot.mismatch(opts.Fingerprint); err != nil {
			return Result{}, err
		}
		switch slot.State {
		case Done:
			return Result{Age: slot.Age(), Key: key, Outcome: outcome, Owner: slot.Owner, Stored: true, Value: slot.Value}, nil
		case Failed:
			return Result{}, &FailedError{Key: key, Reason: slot.Reason, Owner: slot.Owner}
		case Pending:
			outcome = Coalesced
			slot, err = f.Wait(ctx, key)
			continue
		case Absent:
		}
		claim, beginErr := f.Begin(ctx, key, BeginOptions{Fingerprint: opts.Fingerprint, Revision: slot.Revision, TTL: opts.ClaimTTL})
		var taken *TakenError
		switch {
		case errors.As(beginErr, &taken):
			slot = taken.Slot
			outcome = Coalesced
			continue
		case beginErr != nil:
			err = beginErr
			continue
		}
		result, computeErr := f.compute(ctx, claim, fn, opts)
		if !errors.Is(computeErr, ErrLost) || ctx.Err() != nil {
			return result, computeErr
		}
		outcome = Coalesced // somebody took over, or the key was invalidated: theirs is the value
		slot, err = f.Wait(ctx, key)
	}
}

// degrade ends a Do that JetStream did not answer: by computing without it if the caller asked for that.
func (f *Flight) degrade(ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts DoOptions, cause error) (Result, error) {
	if !opts.FailOpen || !errors.Is(cause, ErrUnavailable) {
		return Result{}, cause
	}
	f.log.Warn("kvlock: computing without coordination", "key", key, "error", cause)
	value, err := protect(ctx, key, fn)
	if err != nil {
		return Result{}, err
	}
	return Result{Key: key, Outcome: Computed, Owner: f.cfg.Instance, Value: value}, nil
}

// compute runs fn under the claim and ends the claim with what came of it.
func (f *Flight) compute(ctx context.Context, claim *Claim, fn func(context.Context) ([]byte, error), opts DoOptions) (Result, error) {
	held, stop := claim.Keep(ctx, opts.ClaimTTL)
	value, err := protect(held, claim.key, fn)
	lost := held.Err() != nil && ctx.Err() == nil
	cause := context.Cause(held)
	stop()
	if lost {
		return Result{}, cause
	}
	// Ending the claim is not the caller's to cancel: others wait for it.
	end := context.WithoutCancel(ctx)
	if err != nil {
		if failErr := claim.Fail(end, failureReason(err), 0); failErr != nil && !errors.Is(failErr, ErrLost) {
			f.log.Warn("kvlock: failed claim stays until it expires", "key", claim.key, "claim", claim.id, "error", failErr)
		}
		return Result{}, err
	}
	slot, err := claim.Complete(end, value, opts.TTL)
	if err != nil {
		return Result{}, err
	}
	return Result{Key: slot.Key, Outcome: Computed, Owner: slot.Owner, Stored: true, Value: value}, nil
}

func failureReason(err error) string {
	var p *PanicError
	if errors.As(err, &p) {
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
