package flight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/shown"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// call is a computation in this process, joined by every caller of the key.
type call struct {
	key      string
	ctx      context.Context
	cancel   context.CancelCauseFunc
	decision *decision     // used by the goroutine in proceed only, but for its options
	state    atomic.Int32  // of that
	callers  int           // guarded by Flight.mu
	waits    map[*call]int // guarded by Flight.mu: the computations for which its function waits, with the number of waiting calls
	done     chan struct{}
}

// The states of a computation.
const (
	resting int32 = iota // it has no goroutine
	running
	woken // running, and wake was called
)

// wake makes the computation proceed.
func (c *call) wake() {
	if c.state.Swap(woken) == resting {
		go c.proceed()
	}
}

// proceed continues the computation until it has ended, or has nothing to do before wake is called. It ends the computation even if a
// value of the user, which the context holds, panics or ends the goroutine: the claim then stays until its TTL.
func (c *call) proceed() {
	rests, cut := false, errExited
	defer func() {
		if v := recover(); v != nil {
			cut = &PanicError{Key: c.key, Value: v, Stack: debug.Stack()}
		}
		if !rests {
			c.end(cut)
		}
	}()
	for !rests {
		c.state.Store(running)
		if c.decision.step(c.ctx, c.wake) {
			break
		}
		rests = c.rests()
	}
	cut = nil
}

// end ends the computation with its decision, or with the error cut, if that is not nil.
func (c *call) end(cut error) {
	d := c.decision
	if cut != nil {
		d.result, d.err = Result{}, cut
		if d.awaiting != nil {
			d.awaiting.end()
		}
	}
	f := d.flight
	c.cancel(nil)
	f.forget(c)
	close(c.done)
	f.work.Done()
}

// rests reports whether the goroutine may end, because wake was not called since its last look.
func (c *call) rests() bool { return c.state.CompareAndSwap(running, resting) }

// stop ends the computation.
func (c *call) stop(cause error) {
	c.cancel(cause)
	c.wake()
}

// callKey is the context key of the computations in which a function runs, innermost first.
type callKey struct{}

// nesting is a computation within another.
type nesting struct {
	call  *call
	outer *nesting
}

// nested returns the computations to which ctx belongs, innermost first.
func nested(ctx context.Context) *nesting {
	n, _ := ctx.Value(callKey{}).(*nesting)
	return n
}

// each yields the computations, innermost first.
func (n *nesting) each(yield func(*call) bool) {
	for ; n != nil; n = n.outer {
		if !yield(n.call) {
			return
		}
	}
}

// awaits adds calls to the number of calls by which the functions of these computations wait for c. A negative number ends waits. The
// caller holds Flight.mu.
func (n *nesting) awaits(c *call, calls int) {
	for outer := range n.each {
		if outer.waits == nil {
			outer.waits = map[*call]int{}
		}
		if outer.waits[c] += calls; outer.waits[c] <= 0 {
			delete(outer.waits, c)
		}
	}
}

// circle returns the keys by which c waits for one of these computations: the key of c first, the key of that computation last. It returns
// nil if c waits for none of them. The caller holds Flight.mu.
func (n *nesting) circle(c *call) []string {
	seen := map[*call]bool{}
	var to func(c *call) []string
	to = func(c *call) []string {
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

// join joins the computation of the key that runs in this process, or starts one.
func (f *Flight) join(
	ctx context.Context, key string, fn func(context.Context) ([]byte, error), opts *DoOptions,
) (c *call, joined bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := context.Cause(f.store.Closing); err != nil {
		return nil, false, err
	}
	outer := nested(ctx)
	if c := f.local[key]; c != nil {
		if err := f.refuses(c, outer, opts.Fingerprint); err != nil {
			return nil, false, err
		}
		c.callers++
		outer.awaits(c, 1)
		return c, true, nil
	}
	d := &decision{flight: f, key: key, fn: fn, opts: *opts}
	c = &call{key: key, decision: d, callers: 1, done: make(chan struct{})}
	outer.awaits(c, 1)
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
func (f *Flight) refuses(c *call, within *nesting, fingerprint string) error {
	circle := within.circle(c)
	switch {
	case circle != nil:
		return fmt.Errorf("%w: %s", ErrRecursive, strings.Join(circle, ", which waits for "))
	case c.decision.opts.Fingerprint != fingerprint:
		return fmt.Errorf("%w: key %q is being computed with fingerprint %s, not %s",
			kvlock.ErrMismatch, c.key, shown.Quote(c.decision.opts.Fingerprint), shown.Quote(fingerprint))
	default:
		return nil
	}
}

// leave ends the computation when its last caller has left; a new caller starts another. ctx is the context of the join.
func (f *Flight) leave(ctx context.Context, c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	nested(ctx).awaits(c, -1)
	c.callers--
	if c.callers > 0 {
		return
	}
	if f.local[c.key] == c {
		delete(f.local, c.key)
	}
	c.stop(errNobodyWaits)
}

func (f *Flight) forget(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.local[c.key] == c {
		delete(f.local, c.key)
	}
}

// compute runs the function under the claim and ends the claim with its result.
func (d *decision) compute(ctx context.Context, claim *Claim) (result Result, err error) {
	held, stop := claim.AutoRenew(ctx, d.opts.ClaimTTL)
	value, err := protect(held, claim.key, d.fn)
	lost := held.Err() != nil && ctx.Err() == nil
	cause := context.Cause(held)
	stop()
	failure := shown.Error(err) // callers get err as it is; here its methods might panic
	if errors.As(failure, new(*PanicError)) {
		claim.publish(ctx, EventPanic, err)
	}
	// A caller must not cancel the end of the claim: others wait for it.
	end := context.WithoutCancel(ctx)
	switch {
	case err == nil: // even if the claim seems lost: only the server knows
		result, err = d.complete(end, claim, value)
		d.lost = errors.Is(err, kvlock.ErrLost)
		return result, err
	case lost:
		d.lost = true
		return Result{}, cause
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
	case errors.Is(err, kvlock.ErrLost):
		return Result{}, err
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

// reportStaying reports a claim that could not be ended.
func (c *Claim) reportStaying(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, kvlock.ErrLost) {
		c.flight.store.Log.WarnContext(ctx, "kvlock: claim stays until it expires", "key", c.key, "claim", c.id, "error", err)
	}
}

// AutoRenew renews the claim every third of ttl, 0 for Config.ClaimTTL, until stop is called, ctx ends or the claim is ended. The context
// held ends with ctx, and with the cause ErrLost when the claim is lost: because the server refused a renewal, or because no renewal was
// acknowledged in time, even if the server cannot be reached. held ends before another process can claim the key: at the TTL, less a
// margin, after the last acknowledged renewal was sent.
//
// stop returns when the renewals have ended; it leaves the claim as it is. For a ttl that is not in whole seconds, or out of range, held
// has ended from the beginning, with a cause that says so.
func (c *Claim) AutoRenew(ctx context.Context, ttl time.Duration) (held context.Context, stop func()) {
	ttl = cmp.Or(ttl, c.flight.cfg.ClaimTTL)
	inner, cancel := context.WithCancelCause(ctx)
	if err := c.checkTTL(ttl); err != nil {
		cancel(err)
	}
	var both sync.WaitGroup
	both.Go(func() { c.renew(inner, cancel, ttl) })
	expire := func() {
		err := fmt.Errorf("%w: claim %s of %q: no renewal was acknowledged in time", kvlock.ErrLost, c.id, c.key)
		cancel(err)
		c.tellLost(inner, err)
	}
	both.Go(func() { c.guard(inner, expire) })
	late := func() {
		if until, ended := c.heldUntil(); ended == nil && !time.Now().Before(until) {
			expire()
		}
	}
	return kv.DeadlineContext(inner, late), func() {
		cancel(context.Canceled)
		both.Wait()
	}
}

// renew renews until ctx ends or the claim does. If a value in ctx panics, the renewals end, and in time the claim.
func (c *Claim) renew(ctx context.Context, lost context.CancelCauseFunc, ttl time.Duration) {
	defer shown.Catch(c.flight.store.Log, "a value in the context of AutoRenew")
	until, _ := c.heldUntil() // renewing finds out
	// A claim that was begun for less than ttl, or a while ago, is due earlier.
	for wait := min(ttl/3, time.Until(until)/2); retry.Sleep(ctx, wait); {
		_, err := c.replace(ctx, change{Change: kv.Change{TTL: ttl}}, nil, renewal(ttl))
		_, ended := c.heldUntil()
		switch {
		case err == nil:
			wait = ttl / 3
		case ctx.Err() != nil || errors.Is(ended, errEnded):
			return
		case errors.Is(err, kvlock.ErrLost):
			lost(err) // before an observer, which may take long
			c.tellLost(ctx, err)
			return
		default:
			c.flight.store.Log.WarnContext(ctx, "kvlock: renewal failed, trying again", "key", c.key, "claim", c.id, "error", err)
			c.publish(ctx, EventRenewalFailed, err)
			wait = min(ttl/10, time.Second)
		}
	}
}

// guard calls expire when the claim may no longer be ours. It shares no lock with a renewal under way, so it is on time when a renewal
// hangs.
func (c *Claim) guard(ctx context.Context, expire func()) {
	for left := time.Duration(0); retry.Sleep(ctx, left); {
		until, ended := c.heldUntil()
		if ended != nil {
			return
		}
		if left = time.Until(until); left <= 0 {
			expire()
			return
		}
	}
}

func (c *Claim) heldUntil() (until time.Time, ended error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline, c.ended
}

// sign writes the name of this process into a claim, if others can find out whether the process is alive.
func (f *Flight) sign(r *claimRecord) {
	r.Member, r.Server = "", ""
	if !r.HandOff && r.State == Pending.String() {
		r.Member, r.Server = f.liveness.Self()
	}
}

// isDead reports whether the process that holds the claim in entry is known to be gone.
func (f *Flight) isDead(ctx context.Context, entry Entry) bool {
	return entry.State == Pending && f.liveness.IsGone(ctx, entry.in().member, entry.in().server)
}
