package kvlock

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// LockerConfig configures a [Locker]. Only Bucket is required.
type LockerConfig struct {
	// Bucket is the KV bucket that keeps the locks. It has to exist: see [CreateBucket] and [StreamConfig].
	Bucket string

	// Instance names this process in locks, for people who look at them, in at most 256 bytes. Defaults to the host's
	// name and the process id.
	Instance string

	// Logger gets what nobody else is told: corrupt records. Defaults to slog.Default().
	Logger *slog.Logger

	// Observe is told what happens, as [Config].Observe is. Defaults to nothing, which costs nothing.
	Observe func(context.Context, Event)

	// OpTimeout is how long an unreachable server may keep a caller from an answer. It does not bound the waiting for a
	// lock that somebody holds. Defaults to 2 seconds.
	OpTimeout time.Duration

	// TTL is for how long a lock stays held when its holder's process dies: whole seconds. A living one renews it every
	// third of that. Defaults to 30 seconds.
	TTL time.Duration
}

const (
	defaultLockTTL = 30 * time.Second

	// maxIdle bounds the locks that are followed though nobody uses them.
	maxIdle = 256

	// maxTurns bounds what the server is asked at once: by holders of locks, and by all others. With more it would answer
	// so late that all is asked again.
	maxTurns = 64

	// maxKnown bounds the revisions that are remembered of locks that are not even followed.
	maxKnown = 4096
)

// AcquireOptions are the choices of one acquisition. The zero value is good.
type AcquireOptions struct {
	// Metadata is shown by Inspect and List: who holds the lock and what for, in at most 4,096 bytes. Defaults to none.
	Metadata map[string]string

	// TTL is for how long the lock stays held when this process dies. Defaults to LockerConfig.TTL.
	TTL time.Duration

	// Wait bounds how long Acquire waits, beside its context: a [HeldError] is returned after it. Defaults to no bound.
	Wait time.Duration
}

// Locker holds locks: leases that it renews, that others wait for in the order in which they came, and that end by
// themselves when the process dies. Make one for each bucket and process with [NewLocker]; it is safe for concurrent
// use, by as many goroutines as there are.
//
// A lock is not reentrant: who holds it and acquires it again waits for itself.
type Locker struct {
	*store

	cfg     LockerConfig
	member  string // what this Locker is called in records
	closing sync.Once
	work    sync.WaitGroup // workers of gates
	turns   chan struct{}  // has an element for each write or read under way that is not of a holder
	holders chan struct{}  // the same of those that are

	mu     sync.Mutex
	closed error
	gates  map[string]*gate
	idle   list.List         // of gates that nobody uses, the one that was used last at the end
	known  map[string]uint64 // the last revisions of locks that have no gate
}

// NewLocker binds to the bucket and checks that its stream has the settings that locks are safe with. Close ends it. It
// returns jetstream.ErrStreamNotFound when there is no such bucket, and ErrUnavailable when nobody answered within
// OpTimeout. One round trip.
func NewLocker(ctx context.Context, js jetstream.JetStream, cfg LockerConfig) (*Locker, error) {
	base := Config{
		Bucket: cfg.Bucket, Instance: cfg.Instance, Logger: cfg.Logger, Observe: cfg.Observe, OpTimeout: cfg.OpTimeout,
	}.withDefaults()
	cfg.Instance, cfg.OpTimeout = base.Instance, base.OpTimeout
	if cfg.TTL == 0 {
		cfg.TTL = defaultLockTTL
	}
	if err := errors.Join(base.validate(), prefixed("kvlock: TTL", checkTTL(cfg.TTL))); err != nil {
		return nil, err
	}
	s, err := openStore(ctx, js, storeConfig{
		bucket: base.Bucket, instance: base.Instance, kind: held, log: base.Logger, observe: base.Observe, opTimeout: base.OpTimeout,
	})
	if err != nil {
		return nil, err
	}
	return &Locker{
		store: s, cfg: cfg, member: nuid.Next(), turns: make(chan struct{}, maxTurns), holders: make(chan struct{}, maxTurns),
		gates: map[string]*gate{}, known: map[string]uint64{},
	}, nil
}

func prefixed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Close ends all waits with ErrClosed, ends the contexts of all leases, gives the locks back, and returns when that is
// done, or after twice OpTimeout: what could not be given back is free when its TTL has passed. Calling it again does
// nothing.
func (l *Locker) Close() { l.closing.Do(l.close) }

func (l *Locker) close() {
	l.ending.end(ErrClosed)
	l.mu.Lock()
	l.closed = ErrClosed
	gates := make([]*gate, 0, len(l.gates))
	for _, g := range l.gates {
		gates = append(gates, g)
	}
	l.mu.Unlock()

	by := time.Now().Add(l.cfg.OpTimeout)
	for _, g := range gates {
		g.shut(ErrClosed, by)
	}
	for _, g := range gates {
		<-g.ended
	}
	l.work.Wait()
	l.store.close()
}

// TryAcquire takes the lock if nobody holds it, and otherwise returns a [HeldError] that says who does. One round trip
// for a free lock, two for one that is held; one more for a free lock that this Locker has not used for long and others
// have.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, name, opts, &waiter{now: true})
}

// Acquire takes the lock when it is its turn: those who wait, in whatever process, get it in the order in which they
// came. It waits until its context ends, whose cause it then returns, or opts.Wait has passed. It returns ErrUnavailable
// when nobody answered within LockerConfig.OpTimeout; once it waits, it waits through outages.
//
// One round trip for a free lock. One to queue for one that is held; when that is handed over, the waiter is woken by a
// push. Who has waited for less than a quarter of a second has the lock with that. The Locker confirms it meanwhile, tries
// that again after a quarter of a second, and the lease is lost if it does not come through within half a one. Who has
// waited for longer confirms it first, with one more round trip.
func (l *Locker) Acquire(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, name, opts, &waiter{})
}

// Steal takes the lock from whoever holds it, whose context ends with ErrLost as soon as he learns of it: for a moment
// both may work. It is for people who know that the holder is gone, or has to go. The record says who lost it. The queue
// stays as it is. Two round trips.
func (l *Locker) Steal(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, name, opts, &waiter{now: true, force: true})
}

// Do runs fn while it holds the lock, as Acquire takes it, and releases it: also when fn panics. The context of fn ends
// with ctx and with the lease. Whatever fn changes should refuse a smaller token than it has seen: fn may be paused, and
// go on when somebody else holds the lock.
//
// It returns the error of fn, and ErrLost with it when the lease was lost before fn returned.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, token Token) error) (err error) {
	lease, err := l.Acquire(ctx, name, AcquireOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release(context.WithoutCancel(ctx))) }()
	held, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(lease.ctx, func() { cancel(context.Cause(lease.ctx)) })()
	late := func() {
		if lease.Context().Err() != nil {
			cancel(context.Cause(lease.ctx))
		}
	}
	return fn(punctual{held, late}, lease.token)
}

// waiter is a call that wants a lock.
type waiter struct {
	now      bool // or not at all
	force    bool
	touched  bool // it has had a record written to learn the server's time
	told     bool // that it waits
	ttl      time.Duration
	metadata map[string]string
	values   context.Context //nolint:containedctx // of the lease's context
	came     time.Time

	done chan struct{} // closed when it has ended, with what follows

	// What follows is guarded by gate.mu until done is closed.
	list    *list.List // where it is, and as what; nil when it has ended
	element *list.Element
	lease   *Lease
	err     error
}

// gone says that nobody waits any more.
func (w *waiter) gone() bool { return w.list == nil }

func (l *Locker) acquire(ctx context.Context, name string, opts AcquireOptions, w *waiter) (*Lease, error) {
	if opts.TTL == 0 {
		opts.TTL = l.cfg.TTL
	}
	if err := errors.Join(checkKey(name), checkTTL(opts.TTL), checkMetadata(opts.Metadata)); err != nil {
		return nil, fmt.Errorf("kvlock: acquire %q: %w", name, err)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("kvlock: acquire %q: %w", name, context.Cause(ctx))
	}
	w.ttl, w.metadata, w.values = opts.TTL, opts.Metadata, context.WithoutCancel(ctx)
	w.came, w.done = time.Now(), make(chan struct{})
	g, serves, err := l.enter(name, w)
	if err != nil {
		return nil, err
	}
	if serves {
		g.serve(ctx, l.patience(opts.Wait))
	}
	lease, err := l.await(ctx, g, w, opts.Wait)
	if l.observe != nil {
		l.emit(ctx, w.event(g, lease, err))
	}
	return lease, err
}

// event is what is told of how a wait ended.
func (w *waiter) event(g *gate, lease *Lease, err error) Event {
	e := Event{Kind: EventWaitTimeout, Key: g.name, Owner: g.locker.instance, Elapsed: time.Since(w.came), Err: err}
	held, isHeld := errors.AsType[*HeldError](err)
	switch {
	case err == nil && lease.over != "":
		e.Kind, e.Claim, e.Owner = EventTakeOver, lease.id, lease.over
	case err == nil:
		e.Kind, e.Claim = EventAcquired, lease.id
	case isHeld && w.now:
		e.Kind, e.Claim, e.Owner, e.Err = EventHeld, held.Lock.Lease, held.Lock.Holder, nil
	}
	return e
}

// patience is for how long a caller who waits no longer than bound, if that is not 0, may be kept busy.
func (l *Locker) patience(bound time.Duration) time.Duration {
	if bound > 0 {
		return min(bound, l.cfg.OpTimeout)
	}
	return l.cfg.OpTimeout
}

// await waits for the end of a wait.
func (l *Locker) await(ctx context.Context, g *gate, w *waiter, bound time.Duration) (*Lease, error) {
	select {
	case <-w.done:
		return w.lease, w.err
	default:
	}
	answer := time.NewTimer(time.Until(w.came.Add(l.cfg.OpTimeout)))
	defer answer.Stop()
	var over <-chan time.Time
	if bound > 0 {
		t := time.NewTimer(time.Until(w.came.Add(bound)))
		defer t.Stop()
		over = t.C
	}
	for {
		var why error
		select {
		case <-w.done:
			return w.lease, w.err
		case <-ctx.Done():
			why = context.Cause(ctx)
		case <-over:
			why = g.heldBy()
		case <-answer.C:
			if why = g.unanswered(w); why == nil {
				continue
			}
		}
		if g.giveUp(w) {
			return nil, fmt.Errorf("kvlock: acquire %q: %w", g.name, why)
		}
		<-w.done
		return w.lease, w.err
	}
}

// enter adds the waiter to the gate of the lock. With serves its caller is to work for the gate.
func (l *Locker) enter(name string, w *waiter) (g *gate, serves bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return nil, false, l.closed
	}
	g = l.gates[name]
	if g == nil {
		g = &gate{locker: l, name: name, at: l.known[name], ended: make(chan struct{})}
		l.gates[name] = g
	}
	if g.idle != nil {
		l.idle.Remove(g.idle)
		g.idle = nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	w.list = &g.waiters
	if w.now {
		w.list = &g.others
	}
	w.element = w.list.PushBack(w)
	g.used = w.came
	serves = g.begin()
	return g, serves, nil
}

// rest puts a gate aside that nobody uses, and ends those that were not used for long.
func (l *Locker) rest(g *gate) {
	l.mu.Lock()
	var end []*gate
	g.mu.Lock()
	idle, leaves, closing := g.isIdle(), g.leaves(), g.closing != nil
	g.mu.Unlock()
	switch {
	case !idle:
	case closing || !time.Now().Before(leaves):
		end = append(end, g)
	case g.idle == nil:
		g.idle = l.idle.PushBack(g)
		if l.idle.Len() > maxIdle {
			end = append(end, l.idle.Front().Value.(*gate)) //nolint:forcetypeassert // only gates are in it
		}
	}
	end = slices.DeleteFunc(end, func(g *gate) bool { return !l.retire(g) })
	l.mu.Unlock()
	for _, g := range end {
		if g.watcher != nil {
			g.watcher.Close()
		}
		close(g.ended)
	}
}

// retire ends a gate, if nobody uses it, and remembers its revision. Locker.mu is held.
func (l *Locker) retire(g *gate) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead || !g.isIdle() {
		return false
	}
	g.dead = true
	if g.timer != nil {
		g.timer.Stop()
	}
	if g.idle != nil {
		l.idle.Remove(g.idle)
	}
	delete(l.gates, g.name)
	for name := range l.known {
		if len(l.known) < maxKnown {
			break
		}
		delete(l.known, name)
	}
	if g.rec == nil && g.at != 0 {
		l.known[g.name] = g.at
	}
	return true
}
