package kvlock

import (
	"context"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/lock"
)

// Lease is a lock that this process holds, until [Lease.Release] or until it is lost. Its Locker renews it every third
// of its TTL.
type Lease struct {
	lease *lock.Lease
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.lease.Name() }

// Token returns the fencing token: greater than that of every earlier holder of this lock. Pass it to each system that
// is changed under the lock, and have that refuse a smaller one: see [Guard].
func (l *Lease) Token() Token {
	generation, revision := l.lease.Token()
	return Token{Epoch: generation, Revision: revision}
}

// Context ends when the lease does: with the cause [ErrReleased] before it is released, [ErrLost] when it is lost, and
// [ErrClosed] when the Locker closes. It is lost when the server refuses a renewal, when a push or a read shows another
// holder, and when no renewal was acknowledged in time, even if the server cannot be reached. That time is the TTL,
// less a margin, after the last acknowledged renewal was sent: before another member can take over. The context has the
// values of the context that the lock was acquired with, and does not end with that one.
//
// Done and Err report the lease's end on time, even right after the process was paused. A holder that is paused between
// checking them and acting acts too late all the same: the token guards against that.
func (l *Lease) Context() context.Context { return l.lease.Context() }

// Remaining returns for how long the lease holds if no further renewal is acknowledged; 0 when it has ended.
func (l *Lease) Remaining() time.Duration { return l.lease.Remaining() }

// Release gives the lock up: to the next in the queue if there is one, in the same write. The lease's context ends
// before anything is sent. It never touches another holder's lease, and calling it again does nothing.
//
// It returns ErrLost when the lease had been lost before: another holder may have had the lock meanwhile. It returns
// ErrUnavailable when no server answered within LockerConfig.OpTimeout: the Locker then goes on trying, and the lock is
// free when its TTL has passed at the latest. One round trip.
func (l *Lease) Release(ctx context.Context) error {
	return l.lease.Release(ctx)
}
