package kvlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

	// Logger gets what no caller learns: corrupt records. Defaults to slog.Default().
	Logger *slog.Logger

	// Observe receives events, for metrics, traces and logs: see [EventKind]. It is called by many goroutines at once,
	// and the work waits for it. Its context has the values of the caller's. Defaults to none, which costs nothing.
	Observe func(context.Context, Event)

	// OpTimeout is how long an unreachable server may keep a caller from an answer. It does not bound the waiting for a
	// lock that is held. Defaults to 2 seconds.
	OpTimeout time.Duration

	// TTL is for how long a lock stays held when its holder's process dies: whole seconds. A live holder renews it
	// every third of that. Defaults to 30 seconds.
	TTL time.Duration
}

const defaultTTL = 30 * time.Second

// AcquireOptions are the choices of one acquisition. The zero value is good.
type AcquireOptions struct {
	// Metadata describes the holder and its purpose; Inspect and List return it. At most 4,096 bytes. Defaults to none.
	Metadata map[string]string

	// TTL is for how long the lock stays held when this process dies. Defaults to LockerConfig.TTL.
	TTL time.Duration

	// Wait bounds how long Acquire waits, in addition to its context: Acquire then returns a [HeldError], or
	// ErrUnavailable when no server has answered. Defaults to no bound.
	Wait time.Duration
}

// Locker acquires locks and renews their leases. Waiters get a lock in the order in which they came, and a lease ends
// by itself when its process dies. Make one Locker for each bucket and process with [NewLocker]; it is safe for
// concurrent use by any number of goroutines.
//
// A lock is not reentrant: a holder that acquires it again waits for itself.
//
// A name is any text of parts between dots, such as "db1:5432" or "2026-11-25T09:00", none of which is empty. The key of
// its record is the name, if that may be a key, with at most [MaxKeyBytes]: letters, digits and -/_=. are. Each part that
// has other bytes, or begins with '=', is '=' and its bytes in base64url there.
type Locker struct {
	agents *lock.Agents
	ttl    time.Duration
}

// NewLocker binds to the bucket and checks that its stream has the settings that locks are safe with. Close ends it. It
// returns jetstream.ErrStreamNotFound when there is no such bucket, and ErrUnavailable when no server answered within
// OpTimeout. Two round trips. Where "kvlock.alive.<bucket>.>" may not be published and subscribed to it takes a quarter of
// a second, and others do not find out when this process dies while it waits.
func NewLocker(ctx context.Context, js jetstream.JetStream, cfg LockerConfig) (*Locker, error) {
	base := kv.Config{
		Bucket: cfg.Bucket, Instance: cfg.Instance, Logger: cfg.Logger, OpTimeout: cfg.OpTimeout,
	}.WithDefaults()
	l := &Locker{ttl: cmp.Or(cfg.TTL, defaultTTL)}
	if err := errors.Join(base.Validate(), prefixed("kvlock: TTL", kv.CheckTTL(l.ttl))); err != nil {
		return nil, err
	}
	var err error
	l.agents, err = lock.Open(ctx, js, lock.Config{
		Config: base, Observe: observer(cfg.Observe), TTL: l.ttl,
		Held: func(s lock.State) error { return &HeldError{Lock: l.show(s)} },
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

func prefixed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Close ends all waits with ErrClosed, ends the contexts of all leases, gives the locks back, and returns when that is
// done, or after twice OpTimeout: a lock that could not be given back is free when its TTL has passed. Calling it again
// does nothing.
func (l *Locker) Close() { l.agents.Close() }

// TryAcquire takes the lock if it is free, and otherwise returns a [HeldError] that names the holder. One round trip
// for a free lock, two for a held one; two also for a free lock that this Locker has not used for long and others have.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, opts, lock.Request{Name: name, Now: true})
}

// Acquire waits for the lock and takes it: waiters of all processes get it in the order in which they came. It waits
// until its context ends, whose cause it then returns, or opts.Wait has passed. It returns ErrUnavailable when no
// server answered within LockerConfig.OpTimeout; once it is in the queue, it waits through outages.
//
// One round trip for a free lock, and one to queue for a held lock; one more when the Locker has asked nothing about its bucket
// for a second, for the generation in the token. A push wakes the waiter when the lock is handed to
// it. A waiter of less than a quarter of a second has the lock with that push: the Locker confirms it in the
// background, sends the confirmation again after a quarter of a second, and the lease is lost if none is acknowledged
// within half a second. A waiter of longer confirms first, with one more round trip.
func (l *Locker) Acquire(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, opts, lock.Request{Name: name})
}

// Steal takes the lock from its holder, whose context ends with ErrLost as soon as its process learns of it: for a
// moment both may work. It is for an operator who knows that the holder is gone, or has to go. The record names the
// instance that lost the lock. The queue stays as it is. Two round trips.
func (l *Locker) Steal(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, opts, lock.Request{Name: name, Now: true, Force: true})
}

// Do acquires the lock, runs fn, and releases the lock, also when fn panics. The context of fn ends with ctx and with
// the lease. Systems that fn changes should refuse a smaller token than they have seen: fn may be paused, and go on
// when another holder has the lock.
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

// EventKind names what happened: it serves as the name of a counter, of a log line, of an event in a trace.
type EventKind string

// The events that LockerConfig.Observe receives.
const (
	// EventAcquired: a lock was taken.
	EventAcquired = EventKind(lock.Acquired)
	// EventHeld: a lock was refused, because Holder holds it with Lease.
	EventHeld = EventKind(lock.Held)
	// EventReleased: the holder released the lock after Elapsed.
	EventReleased = EventKind(lock.Released)
	// EventLost: the holder found that another instance has the lock, or that no renewal was acknowledged in time.
	EventLost = EventKind(lock.Lost)
	// EventRenewalFailed: a renewal was not acknowledged and is sent again; Err says why.
	EventRenewalFailed = EventKind(lock.RenewalFailed)
	// EventTakeOver: a waiter took the lock of Holder, which died; it had waited for Elapsed.
	EventTakeOver = EventKind(lock.TakeOver)
	// EventWaiting: a call begins to wait for Lease, held by Holder.
	EventWaiting = EventKind(lock.Waiting)
	// EventWaitTimeout: a caller gave up after Elapsed, for the reason in Err.
	EventWaitTimeout = EventKind(lock.WaitTimeout)
	// EventCorrupt: a record that cannot be read was removed; Err says what is wrong with it.
	EventCorrupt = EventKind(lock.Corrupt)
)

// Event is one thing that happened to a lock. Fields that mean nothing for its kind are zero.
type Event struct {
	Kind    EventKind
	Name    string        // of the lock
	Lease   string        // the id of the lease
	Holder  string        // the instance that holds or held it
	Elapsed time.Duration // how long that took which ended with this event
	Err     error
}

// observer adapts the function of a configuration; nil stays nil.
func observer(observe func(context.Context, Event)) func(context.Context, lock.Event) {
	if observe == nil {
		return nil
	}
	return func(ctx context.Context, e lock.Event) {
		observe(ctx, Event{Kind: EventKind(e.Kind), Name: e.Name, Lease: e.Lease, Holder: e.Holder, Elapsed: e.Elapsed, Err: e.Err})
	}
}
