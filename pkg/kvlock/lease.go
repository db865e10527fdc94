package kvlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Lease is a lock that is held. It ends by [Lease.Release], or is lost. A Locker renews it every third of its TTL.
type Lease struct {
	gate     *gate
	id       string
	metadata map[string]string
	name     string
	ttl      time.Duration
	over     string // the instance that it was taken over from, which died
	taken    time.Time
	token    Token

	ctx    context.Context //nolint:containedctx // it is the life of the lease, not of a call
	cancel context.CancelCauseFunc

	// What follows is guarded by gate.mu.
	deadline  time.Time // until when the lease is ours for sure, on the monotonic clock
	renewAt   time.Time
	timer     *time.Timer   // ends the lease at its deadline
	releasing bool          // Release was called, or the Locker closes
	done      chan struct{} // closed when it is over, with
	err       error
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.name }

// Token returns the fencing token: greater than that of every earlier holder of this lock. Pass it to whatever is
// changed under the lock, and have a smaller one refused there: see [Guard].
func (l *Lease) Token() Token { return l.token }

// Context ends when the lease does: with the cause [ErrReleased] before it is released, [ErrLost] when it is lost, and
// [ErrClosed] when the Locker closes. It is lost when the server says so, when somebody else is seen to hold the lock,
// and when no renewal was acknowledged in time, even if the server cannot be reached: at the TTL, less a margin, after
// the last renewal that was acknowledged was sent, which is before anybody else can take over. It has the values of the
// context that the lock was acquired with, and does not end with that.
//
// Who asks whether it has ended is told so on time, also right after the process was frozen. Who was frozen between
// asking and acting acts too late all the same: that is what the token is for.
func (l *Lease) Context() context.Context { return punctual{l.ctx, l.endInTime} }

// endInTime ends the lease when its deadline has passed and its timer has not run yet.
func (l *Lease) endInTime() {
	l.gate.mu.Lock()
	over := !time.Now().Before(l.deadline)
	l.gate.mu.Unlock()
	if over {
		l.expire()
	}
}

// Remaining is for how long the lease holds if no renewal comes through any more; 0 when it has ended.
func (l *Lease) Remaining() time.Duration {
	l.gate.mu.Lock()
	defer l.gate.mu.Unlock()
	if l.ctx.Err() != nil {
		return 0
	}
	return max(0, time.Until(l.deadline))
}

// Release gives the lock up: to the next in the queue if there is one, in the same write. The lease's context ends
// before anything is sent. It never touches somebody else's lease, and calling it again does nothing.
//
// It returns ErrLost when the lease had been lost before, so that the caller knows that it was not alone; and
// ErrUnavailable when nobody answered within LockerConfig.OpTimeout: the Locker goes on trying then, and at the latest
// the lock is free when its TTL has passed. One round trip.
func (l *Lease) Release(ctx context.Context) error {
	by := time.Now().Add(l.gate.locker.cfg.OpTimeout)
	l.gate.mu.Lock()
	first, serves := l.ctx.Err() == nil, false
	if first {
		l.release(ErrReleased)
		serves = l.gate.begin()
	}
	l.gate.mu.Unlock()
	if serves {
		l.gate.serve(ctx, l.gate.locker.cfg.OpTimeout)
	}

	if err := l.ended(ctx, by); err != nil {
		return err
	}
	switch {
	case l.err != nil:
		return fmt.Errorf("kvlock: release %q: %w", l.name, l.err)
	case first:
		l.gate.locker.emit(ctx, l.event(EventReleased, nil))
	}
	return nil
}

// ended waits until the lease is over.
func (l *Lease) ended(ctx context.Context, by time.Time) error {
	select {
	case <-l.done:
		return nil
	default:
	}
	ctx, cancel := context.WithDeadlineCause(ctx, by, ErrUnavailable)
	defer cancel()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kvlock: release %q: %w", l.name, context.Cause(ctx))
	}
}

// release ends the context; the worker then gives the lock up. It is called with the gate's mu held.
func (l *Lease) release(cause error) {
	l.cancel(cause)
	l.releasing = true
	if enough := deadline(time.Now(), l.ttl); l.deadline.Before(enough) {
		l.deadline = enough // nobody works under it any more: this is only for how long giving it up is tried
	}
}

// extend makes the lease hold on from a write that was sent at sent and acknowledged.
func (l *Lease) extend(sent time.Time) {
	l.deadline, l.renewAt = deadline(sent, l.ttl), sent.Add(l.ttl/3)
}

// expire ends the lease when it is not ours any more for sure. It shares nothing with a write that is under way, and so
// is on time when that hangs.
func (l *Lease) expire() {
	g := l.gate
	g.mu.Lock()
	defer g.tellAll() // whoever else would is stuck, perhaps
	defer g.mu.Unlock()
	if g.lease != l {
		return
	}
	if left := time.Until(l.deadline); left > 0 {
		l.timer.Reset(left)
		return
	}
	if l.releasing {
		g.end(l, errors.Join(ErrUnavailable, g.failure))
	} else {
		g.lose(l, fmt.Errorf("%w: lock %q: no renewal was acknowledged in time", ErrLost, l.name))
	}
	g.start()
}

func (l *Lease) event(kind EventKind, err error) Event {
	return Event{
		Kind: kind, Key: l.name, Claim: l.id, Owner: l.gate.locker.instance, Elapsed: time.Since(l.taken), Err: err,
	}
}
