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
