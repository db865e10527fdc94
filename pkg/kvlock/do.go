package kvlock

import (
	"context"
	"errors"
	"fmt"
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
	Value   []byte // shared between callers: not written to
}

// DoOptions are the choices of one [Flight.Do]. The zero value is good.
type DoOptions struct {
	// ClaimTTL is after how long others take over when this process dies. Defaults to Config.ClaimTTL.
	ClaimTTL time.Duration

	// FailOpen computes the value although JetStream is unreachable, and returns it although it could not be stored;
	// others may compute it too. Defaults to false: ErrUnavailable is returned, and a call that waits for another
	// process waits until its context ends.
	FailOpen bool

	// Fingerprint tells inputs apart that share a key, in at most 1,024 bytes: hash what is longer. Defaults to none.
	Fingerprint string

	// KeepRunning lets the function finish when every caller in this process has gone, if one of them wants it.
	// Defaults to false: its context is cancelled and the claim given back.
	KeepRunning bool

	// TTL is how long the result is kept. Defaults to Config.ResultTTL.
	TTL time.Duration
}

func (opts DoOptions) validate() error {
	var errs []error
	for _, o := range []struct {
		name string
		ttl  time.Duration
	}{{"ClaimTTL", opts.ClaimTTL}, {"TTL", opts.TTL}} {
		if o.ttl == 0 {
			continue
		}
		if err := checkTTL(o.ttl); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.name, err))
		}
	}
	return errors.Join(append(errs, checkFingerprint(opts.Fingerprint))...)
}

// Do returns the value of key: from the bucket, or by running fn, or from whoever runs it already, in this process or
// another. However many call at once, one runs fn. When its process dies, another takes over after the claim's TTL.
//
// fn runs on a context of its own, with the values of the first caller's: a caller that gives up leaves it running for
// the others. It ends when the last caller of this process is gone, when the claim is lost (cause [ErrLost]), and when
// the Flight closes; fn has to return then, for nobody is served before it does. An error of fn is not kept: callers in
// this process get it as it is, those in others get a [FailedError] with its text, and the next caller runs fn again. A
// panic becomes a [PanicError]. A computation that is cancelled is no failure: who waits in another process takes over.
//
// fn may call Do for other keys, with the context that it is given. Two functions that wait for each other's key wait
// until their callers give up; one that asks for its own key gets ErrRecursive.
//
// One round trip for a cached value; three when the value is computed: read, claim, complete.
func (f *Flight) Do(ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts DoOptions) (Result, error) {
	start := time.Now()
	if err := errors.Join(checkKey(key), opts.validate()); err != nil {
		return Result{}, fmt.Errorf("kvlock: do %q: %w", key, err)
	}
	c, err := f.join(ctx, key, fn, opts)
	if err != nil {
		return Result{}, err
	}
	defer f.leave(c)
	select {
	case <-c.done:
		result := c.result
		result.Elapsed = time.Since(start)
		return result, c.err
	case <-ctx.Done():
		return Result{}, fmt.Errorf("kvlock: wait for %q: %w", key, context.Cause(ctx))
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
			slot, err = f.await(ctx, slot, opts.FailOpen)
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
		slot, err = f.await(ctx, Slot{Key: key}, opts.FailOpen)
	}
}

// degrade ends a Do that JetStream did not answer: by computing without it if the caller asked for that.
func (f *Flight) degrade(
	ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts DoOptions, cause error,
) (Result, error) {
	if !opts.FailOpen || !errors.Is(cause, ErrUnavailable) || ctx.Err() != nil {
		return Result{}, cause
	}
	f.log.WarnContext(ctx, "kvlock: computing without coordination", "key", key, "error", cause)
	value, err := protect(ctx, key, fn)
	if err != nil {
		return Result{}, err
	}
	return Result{Key: key, Outcome: Computed, Owner: f.cfg.Instance, Value: value}, nil
}
