package kvlock

import (
	"context"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/lock"
)

// Lease is a lock that is held. It ends by [Lease.Release], or is lost. A Locker renews it every third of its TTL.
type Lease struct {
	lease *lock.Lease
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.lease.Name() }

// Token returns the fencing token: greater than that of every earlier holder of this lock. Pass it to whatever is
// changed under the lock, and have a smaller one refused there: see [Guard].
func (l *Lease) Token() Token {
	generation, revision := l.lease.Token()
	return Token{Epoch: generation, Revision: revision}
}

// Context ends when the lease does: with the cause [ErrReleased] before it is released, [ErrLost] when it is lost, and
// [ErrClosed] when the Locker closes. It is lost when the server says so, when somebody else is seen to hold the lock,
// and when no renewal was acknowledged in time, even if the server cannot be reached: at the TTL, less a margin, after
// the last renewal that was acknowledged was sent, which is before anybody else can take over. It has the values of the
// context that the lock was acquired with, and does not end with that.
//
// Done and Err report the lease's end on time, even right after the process was paused. A holder that is paused between
// looking at them and acting acts too late all the same: that is what the token is for.
func (l *Lease) Context() context.Context { return l.lease.Context() }

// Remaining returns for how long the lease holds if no renewal comes through any more; 0 when it has ended.
func (l *Lease) Remaining() time.Duration { return l.lease.Remaining() }

// Release gives the lock up: to the next in the queue if there is one, in the same write. The lease's context ends
// before anything is sent. It never touches somebody else's lease, and calling it again does nothing.
//
// It returns ErrLost when the lease had been lost before, so that the caller knows that it was not alone; and
// ErrUnavailable when nobody answered within LockerConfig.OpTimeout: the Locker goes on trying then, and at the latest
// the lock is free when its TTL has passed. One round trip.
func (l *Lease) Release(ctx context.Context) error {
	return l.lease.Release(ctx)
}
