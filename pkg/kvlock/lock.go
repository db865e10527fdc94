package kvlock

import (
	"context"
	"iter"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/lock"
)

// Lock is the state of a lock at the time of one read, for display. It is a hint: the lock may have changed since.
type Lock struct {
	Name     string
	Held     bool              // by an instance that, if dead, was seen alive less than twice its TTL ago
	Granted  bool              // handed over to Holder, which may hold it already and has not confirmed it yet
	Holder   string            // the instance that holds it
	Lease    string            // the id of the lease
	Metadata map[string]string // AcquireOptions.Metadata of the holder; not written to
	Since    time.Time         // when it was taken, by the holder's clock
	Stolen   string            // the instance that it was taken from by force, if it was
	Token    Token
	TTL      time.Duration
	Queue    []Waiting // the next first

	Revision uint64    // of the record
	Written  time.Time // when the server stored the record
}

// Waiting is a number of waiters that follow each other in the queue of a lock and belong to one instance.
type Waiting struct {
	Instance string
	Waiters  int
}

// Age returns for how long the lock has been held, never negative. It compares the holder's clock with this process's.
func (l Lock) Age() time.Duration {
	if !l.Held {
		return 0
	}
	return max(0, time.Since(l.Since))
}

// show converts the state of a lock for display.
func (l *Locker) show(s lock.State) Lock {
	shown := Lock{Name: s.Name, Revision: s.Revision, Written: s.Created}
	r := s.Record
	if r == nil {
		return shown
	}
	shown.Held, shown.Granted, shown.Holder, shown.Lease = true, r.Granted, r.Instance, r.Lease
	shown.Metadata, shown.Stolen, shown.TTL = r.Metadata, r.Stolen, r.TTL
	shown.Since = time.UnixMilli(r.Since)
	shown.Token = Token{Epoch: l.agents.Generation(), Revision: r.TakenAt(s.Revision)}
	for instance, waiters := range r.Queue {
		shown.Queue = append(shown.Queue, Waiting{Instance: instance, Waiters: waiters})
	}
	return shown
}

// Inspect returns the holder of a lock, since when it holds it, and the queue. One round trip.
func (l *Locker) Inspect(ctx context.Context, name string) (Lock, error) {
	s, err := l.agents.Inspect(ctx, name)
	if err != nil {
		return Lock{}, err
	}
	return l.show(s), nil
}

// List yields the held locks whose names begin with prefix and a dot, or all held locks if prefix is "". Each is as
// Inspect returns it, but possibly older. They come in the order in which they were last written.
//
// It needs the permission to make a consumer, with subjects that begin with "$JS.API.CONSUMER.". At most 500 records
// are in memory at a time. A lock that is held all the time is yielded at least once, and again when it is written
// meanwhile. A record that cannot be read is yielded with its name and the reason; an error with an empty lock is the
// last. The end of ctx ends the iteration.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[Lock, error] {
	return func(yield func(Lock, error) bool) {
		l.agents.List(ctx, prefix, func(s lock.State, err error) bool {
			if err == nil && s.Record == nil { // it is free
				return true
			}
			return yield(l.show(s), err)
		})
	}
}

// Observe yields the state of a lock as it is, and again when another lease holds it, when a lease that was handed over is
// confirmed, and when the lock is free: so that all members know a leader that the holders of a lock elect. The Metadata of
// a holder, its address for instance, are known when Granted is false. Of changes that follow each other faster than the
// loop's body, the latest is yielded.
//
// A state is a hint: it is pushed, or read within two seconds, and the lock may have changed since. A holder that died is
// shown until another takes the lock, or for twice its TTL. An error, the cause of ctx for instance, is the last, with an
// empty lock. All observers of a Locker share one subscription.
func (l *Locker) Observe(ctx context.Context, name string) iter.Seq2[Lock, error] {
	return func(yield func(Lock, error) bool) {
		l.agents.Observe(ctx, name, func(s lock.State, err error) bool { return yield(l.show(s), err) })
	}
}

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
