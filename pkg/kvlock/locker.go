package kvlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/lock"
)

// LockerConfig configures a [Locker]. Only Bucket is required.
type LockerConfig struct {
	// Bucket is the KV bucket that keeps the locks. It has to exist: see [CreateBucket] and [StreamConfig].
	Bucket string

	// Instance names this process in the records of locks, where people read it: at most 256 bytes. Defaults to the
	// host's name and the process id.
	Instance string

	// Logger gets the faults that no caller gets as an error: corrupt records. Defaults to slog.Default().
	Logger *slog.Logger

	// OpTimeout bounds the time for which a caller waits for an unreachable server. It does not bound the wait for a held lock. Defaults to 2
	// seconds.
	OpTimeout time.Duration

	// TTL is the time for which a lock stays held when its holder's process dies, in whole seconds. A live holder renews it every third of
	// that time. Defaults to 30 seconds.
	TTL time.Duration
}

const defaultTTL = 30 * time.Second

// AcquireOptions are the options of one acquisition. The zero value is valid.
type AcquireOptions struct {
	// Metadata describes the holder and its purpose; Inspect and List return it. At most 4,096 bytes. Defaults to none.
	Metadata map[string]string

	// TTL is the time for which the lock stays held when this process dies. Defaults to LockerConfig.TTL.
	TTL time.Duration

	// Wait bounds the wait of Acquire, in addition to its context: Acquire then returns a [HeldError], or ErrUnavailable when no server has
	// answered. Defaults to no bound.
	Wait time.Duration
}

// Locker acquires locks and renews their leases. Waiters get a lock in the order in which they came, and a lease ends
// by itself when its process dies. Make one Locker for each bucket and process with [NewLocker]; it is safe for
// concurrent use by any number of goroutines.
//
// A lock is not reentrant: a holder that acquires it again waits for itself.
//
// A name is any text without empty parts between dots, such as "db1:5432" or "2026-11-25T09:00". The key of its record is the name, if the
// name is a valid key: at most [MaxKeyBytes] of letters, digits and -/_=. characters. In the key, each part with other bytes, or with '='
// at its beginning, is '=' and its bytes in base64url.
type Locker struct {
	agents *lock.Agents
	ttl    time.Duration
}

// NewLocker binds to the bucket and checks that its stream has settings with which locks are safe. Close ends it. It returns
// jetstream.ErrStreamNotFound when the bucket does not exist, and ErrUnavailable when no server answered within OpTimeout. Two round
// trips. Without the permission to publish and subscribe to
// "kvlock.alive.<bucket>.>" it takes a quarter of a second, and others do not find out when this process dies while it waits.
func NewLocker(ctx context.Context, js jetstream.JetStream, cfg LockerConfig) (*Locker, error) {
	base := kv.Config{Bucket: cfg.Bucket, Instance: cfg.Instance, Logger: cfg.Logger, OpTimeout: cfg.OpTimeout}.WithDefaults()
	l := &Locker{ttl: cmp.Or(cfg.TTL, defaultTTL)}
	if err := errors.Join(base.Validate(), prefixed("kvlock: TTL", kv.CheckTTL(l.ttl))); err != nil {
		return nil, err
	}
	var err error
	l.agents, err = lock.Open(ctx, js, lock.Config{
		Config: base, TTL: l.ttl, Held: func(s lock.State) error { return &HeldError{Lock: l.show(s)} },
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func prefixed(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", prefix, err)
}

// Close ends all waits with ErrClosed, ends the contexts of all leases, gives the locks back, and returns when that is
// done, or after twice OpTimeout: a lock that could not be given back is free when its TTL has passed. Calling it again
// does nothing.
func (l *Locker) Close() { l.agents.Close() }

// TryAcquire takes the lock if it is free, and otherwise returns a [HeldError] that names the holder. One round trip
// for a free lock, two for a held one; two also for a free lock that others have used and this Locker has not used for long.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, opts, lock.Request{Name: name, Now: true})
}

// Acquire waits for the lock and takes it: waiters of all processes get it in the order in which they came. It waits until opts.Wait has
// passed, or until its context ends: then it returns the cause. It returns ErrUnavailable when no server answered within
// LockerConfig.OpTimeout; once in the queue, it waits through outages.
//
// One round trip for a free lock, and one to queue for a held lock; one more, for the generation in the token, when the Locker's last
// question about its bucket is more than a second old. A push wakes the waiter when the lock is handed to it. A waiter of less than a
// quarter of a second has the lock with that push: the Locker confirms it in the background, and again after a quarter of a second. The
// lease is lost if no confirmation is acknowledged within half a second. A waiter of longer confirms first, with one more round trip.
func (l *Locker) Acquire(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, opts, lock.Request{Name: name})
}

// Steal takes the lock from its holder. The holder's context ends with ErrLost as soon as its process learns of that: for a moment both
// may work. It is for an operator who knows that the holder is gone, or has to go. The record names the instance that lost the lock. The
// queue stays as it is. Two round trips.
func (l *Locker) Steal(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, opts, lock.Request{Name: name, Now: true, Force: true})
}

// Do acquires the lock, runs fn, and releases the lock, even if fn panics. The context of fn ends with ctx and with the lease. Systems
// that fn changes should refuse a token smaller than one they have seen: fn may be paused, and go on when another holder has the lock.
//
// It returns the error of fn, and ErrLost with it when the lease was lost before fn returned.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, token Token) error) (err error) {
	lease, err := l.Acquire(ctx, name, AcquireOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release(context.WithoutCancel(ctx))) }()
	held, stop := whileHeld(ctx, lease.Context())
	defer stop()
	return fn(held, lease.Token())
}

func (l *Locker) acquire(ctx context.Context, opts AcquireOptions, r lock.Request) (*Lease, error) {
	r.TTL, r.Wait, r.Metadata = cmp.Or(opts.TTL, l.ttl), opts.Wait, opts.Metadata
	if err := errors.Join(lock.CheckName(r.Name), kv.CheckTTL(r.TTL), lock.CheckMetadata(r.Metadata)); err != nil {
		return nil, fmt.Errorf("kvlock: acquire %q: %w", r.Name, err)
	}
	lease, err := l.agents.Acquire(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Lease{lease}, nil
}

// Lock is the state of a lock at the time of one read, for display. It is a hint: the lock may have changed since.
type Lock struct {
	Name     string
	Held     bool              // held by an instance; a dead one was alive less than twice its TTL ago
	Granted  bool              // handed over to Holder, which has not confirmed it yet, and may hold it already
	Holder   string            // the instance that holds the lock
	Lease    string            // the id of the lease
	Metadata map[string]string // AcquireOptions.Metadata of the holder; not written to
	Since    time.Time         // the time at which it was taken, by the holder's clock
	Stolen   string            // the instance from which it was taken by force, if any
	Token    Token
	TTL      time.Duration
	Queue    []Waiting // the next first

	Revision uint64    // of the record
	Written  time.Time // the time at which the server stored the record
}

// Waiting is a series of waiters of one instance in the queue of a lock.
type Waiting struct {
	Instance string
	Waiters  int
}

// Age returns the time for which the lock has been held, never negative. It compares the holder's clock with this process's.
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

// Inspect returns the holder of a lock, the time since when it has held the lock, and the queue. One round trip.
func (l *Locker) Inspect(ctx context.Context, name string) (Lock, error) {
	s, err := l.agents.Inspect(ctx, name)
	if err != nil {
		return Lock{}, err
	}
	return l.show(s), nil
}

// List yields the held locks whose names begin with prefix and a dot, or all held locks if prefix is "". Each Lock is as from Inspect, but
// possibly older. They come in the order of their names.
//
// It makes no consumer, and reads 512 records at a time. A record that cannot be read is yielded with its name and the reason; an error
// with an empty lock comes last. The end of ctx ends the iteration.
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

// Observe yields the present state of a lock, and its state again when another lease holds it, when a lease that was handed over is
// confirmed, and when the lock is free. So all members can know the leader, if the holder of the lock is the leader. The Metadata of a
// holder, its address for instance, are known when Granted is false. If the lock changes several times while the loop's body runs, the
// latest state is yielded.
//
// A state is a hint: it is pushed, or read within two seconds, and the lock may have changed since. A dead holder is yielded until another
// takes the lock, or for twice its TTL. An error, the cause of ctx for instance, comes last, with an empty lock. All observers of a Locker
// share one subscription.
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

// Token returns the fencing token: greater than that of every earlier holder of this lock. Pass it to each system that is changed under
// the lock. The system has to refuse a smaller token: see [Guard].
func (l *Lease) Token() Token {
	generation, revision := l.lease.Token()
	return Token{Epoch: generation, Revision: revision}
}

// Context returns a context that ends with the lease: with the cause [ErrReleased] before it is released, [ErrLost] when it is lost, and
// [ErrClosed] when the Locker closes. The lease is lost when the server refuses a renewal, when a push or a read has another holder, and
// when no renewal was acknowledged in time, even if the server cannot be reached. That time is the TTL, less a margin, after the last
// acknowledged renewal was sent: before another member can take over. The context has the values of the context of the acquisition, but
// does not end with that context.
//
// Done and Err report the lease's end on time, even right after the process was paused. A holder that is paused between a check and its
// action acts too late all the same: the token guards against that.
func (l *Lease) Context() context.Context { return l.lease.Context() }

// Release gives the lock up: to the next in the queue if there is one, in the same write. The lease's context ends before the request is
// sent. Release never changes another holder's lease, and calling it again does nothing.
//
// It returns ErrLost when the lease had been lost before: another holder may have had the lock meanwhile. It returns
// ErrUnavailable when no server answered within LockerConfig.OpTimeout: the Locker then goes on trying, and the lock is
// free when its TTL has passed at the latest. One round trip.
func (l *Lease) Release(ctx context.Context) error {
	return l.lease.Release(ctx)
}
