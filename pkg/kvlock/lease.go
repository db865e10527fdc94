package kvlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// Lease is a lock that this process holds, until [Lease.Release] or until it is lost. Its Locker renews it every third
// of its TTL.
type Lease struct {
	agent    *agent
	id       string
	metadata map[string]string
	ttl      time.Duration
	taken    time.Time
	token    Token

	ctx    context.Context
	cancel context.CancelCauseFunc

	// The fields below are guarded by agent.mu.
	deadline  time.Time // the time until which no other member can have the lock, on the monotonic clock
	renewAt   time.Time
	timer     *time.Timer   // ends the lease at its deadline
	releasing bool          // Release was called, or the Locker closes
	done      chan struct{} // closed when the lease is over, with
	err       error
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.agent.name }

// Token returns the fencing token: greater than that of every earlier holder of this lock. Pass it to each system that is changed under
// the lock. The system has to refuse a smaller token: see [Guard].
func (l *Lease) Token() Token { return l.token }

// Context returns a context that ends with the lease: with the cause [ErrReleased] before it is released, [ErrLost] when it is lost, and
// [ErrClosed] when the Locker closes. The lease is lost when the server refuses a renewal, when a push or a read has another holder, and
// when no renewal was acknowledged in time, even if the server cannot be reached. That time is the TTL, less a margin, after the last
// acknowledged renewal was sent: before another member can take over. The context has the values of the context of the acquisition, but
// does not end with that context.
//
// Done and Err report the lease's end on time, even right after the process was paused. A holder that is paused between a check and its
// action acts too late all the same: the token guards against that.
func (l *Lease) Context() context.Context { return kv.DeadlineContext(l.ctx, l.endInTime) }

// endInTime ends the lease when its deadline has passed and its timer has not run yet.
func (l *Lease) endInTime() {
	l.agent.mu.Lock()
	over := !time.Now().Before(l.deadline)
	l.agent.mu.Unlock()
	if over {
		l.expire()
	}
}

// Release gives the lock up: to the next in the queue if there is one, in the same write. The lease's context ends before the request is
// sent. Release never changes another holder's lease, and calling it again does nothing.
//
// It returns ErrLost when the lease had been lost before: another holder may have had the lock meanwhile. It returns
// ErrUnavailable when no server answered within LockerConfig.OpTimeout: the Locker then goes on trying, and the lock is
// free when its TTL has passed at the latest. One round trip.
func (l *Lease) Release(ctx context.Context) error {
	opTimeout := l.agent.locker.store.OpTimeout
	by := time.Now().Add(opTimeout)
	l.agent.mu.Lock()
	serves := false
	if l.ctx.Err() == nil {
		l.release(ErrReleased)
		serves = l.agent.begin()
	}
	l.agent.mu.Unlock()
	if serves {
		l.agent.serve(ctx, opTimeout)
	}

	if err := l.ended(ctx, by); err != nil {
		return err
	}
	if l.err != nil {
		return fmt.Errorf("kvlock: release %q: %w", l.agent.name, l.err)
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
		return fmt.Errorf("kvlock: release %q: %w", l.agent.name, context.Cause(ctx))
	}
}

// release ends the context; the worker then gives the lock up. The caller holds the agent's mu.
func (l *Lease) release(cause error) {
	l.cancel(cause)
	l.releasing = true
	if enough := kv.Deadline(time.Now(), l.ttl); l.deadline.Before(enough) {
		l.deadline = enough // the holder has stopped: the deadline now only bounds the tries to give the lock up
	}
}

// extend renews the lease by an acknowledged write that was sent at the time sent.
func (l *Lease) extend(sent time.Time) {
	l.deadline, l.renewAt = kv.Deadline(sent, l.ttl), sent.Add(l.ttl/3)
}

// expire ends the lease when another member may have the lock. It shares no lock with a write under way, so it is on time when the write
// hangs.
func (l *Lease) expire() {
	a := l.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease != l {
		return
	}
	if left := time.Until(l.deadline); left > 0 {
		l.timer.Reset(left)
		return
	}
	if l.releasing {
		a.end(l, errors.Join(ErrUnavailable, a.failure))
	} else {
		a.lose(l, fmt.Errorf("%w: lock %q: no renewal was acknowledged in time", ErrLost, a.name))
	}
	a.start()
}
