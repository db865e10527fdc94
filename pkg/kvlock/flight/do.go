package flight

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/expediter-io/expediter/internal/shown"
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
	Value   []byte // shared between callers: not written to
}

// result returns the result in an entry that is Done.
func (s *Entry) result(outcome Outcome) Result {
	return Result{
		Age: s.Age(), Claim: s.Claim, Job: s.Job, Key: s.Key, Outcome: outcome, Owner: s.Owner, Value: s.Value,
	}
}

// Do returns the value of key: from the bucket, or by running fn, or from a call that runs fn already, in this process or another. Of any
// number of concurrent calls, one runs fn. When the process of that call dies, another takes over as soon as probes find it gone. That
// takes 50 ms when both processes are on one server, or a sixth of a second after a wait of some seconds. It takes a second when they are
// on different servers, and five seconds when the owner's server cannot be reached or was restarted. A process that waits for several
// others needs a quarter of a second for each of them. See Config.ProbeInterval. A paused process is given the claim's TTL.
//
// fn runs on a context of its own, with the values of the first caller's: a caller that gives up leaves it running for
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
		return Result{}, fmt.Errorf("kvlock: do %s: %w", shown.Quote(key), err)
	}
	start := time.Now()
	if f.memory == nil || !f.remembered(key, &result) {
		err = f.obtain(ctx, key, fn, &opts, &result)
	}
	err = f.returned(ctx, start, &result, err)
	return result, err
}

// remembered takes the result that this process has in memory, and reports whether there is one.
func (f *Flight) remembered(key string, r *Result) bool {
	entry, ok := f.memory.recall(key)
	if !ok || entry.State != Done || entry.Fingerprint != "" {
		return false
	}
	*r = entry.result(Cached)
	r.Memory = true
	return true
}

// returned counts and reports the end of a call that began at start.
func (f *Flight) returned(ctx context.Context, start time.Time, r *Result, err error) error {
	elapsed := time.Since(start)
	f.counts.returned(r, err)
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
	c, joined, err := f.join(ctx, key, fn, opts)
	if err != nil {
		return err
	}
	defer f.leave(ctx, c)
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
func (f *Flight) tellJoined(ctx context.Context, c *call) {
	f.emit(ctx, Event{Kind: EventWaiting, Key: c.key, Owner: f.store.Instance})
}

// shared returns the result of a computation to one of its callers.
//
//go:noinline // see obtain
func (f *Flight) shared(ctx context.Context, c *call, joined bool, start time.Time, r *Result) error {
	*r = c.decision.result
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
func (f *Flight) gaveUp(ctx context.Context, c *call, start time.Time) error {
	err := fmt.Errorf("kvlock: wait for %q: %w", c.key, context.Cause(ctx))
	f.emit(ctx, Event{Kind: EventWaitTimeout, Key: c.key, Elapsed: time.Since(start), Err: err})
	return err
}

func failureReason(err error) string {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return "panic: " + shown.Text(p.Value)
	}
	return err.Error()
}

// errExited is the failure of a function that ended its goroutine instead of returning.
var errExited = errors.New("kvlock: function called runtime.Goexit")

// protect runs fn and turns a panic, and an end of its goroutine, into an error. It runs fn on a goroutine of its own because
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
