package kvlock

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
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

const (
	defaultTTL = 30 * time.Second

	// maxIdle bounds the unused locks that are followed.
	maxIdle = 256

	// maxTurns bounds the requests of holders of locks that are under way at once, and separately all others. With more requests the server
	// would answer so late that they time out and are repeated.
	maxTurns = 64

	// maxKnown bounds the remembered revisions of locks that are not followed.
	maxKnown = 4096
)

// AcquireOptions are the options of one acquisition. The zero value is valid.
type AcquireOptions struct {
	// Metadata describes the holder and its purpose; Inspect and List return it. At most 4,096 bytes of UTF-8. Defaults to none.
	Metadata map[string]string

	// TTL is the time for which the lock stays held when this process dies. Defaults to LockerConfig.TTL.
	TTL time.Duration

	// Wait bounds the wait of Acquire, in addition to its context: Acquire then returns a [HeldError], or ErrUnavailable when no server has
	// answered. Defaults to no bound.
	Wait time.Duration
}

func (o *AcquireOptions) validate() error {
	size := 0
	for name, value := range o.Metadata {
		size += len(name) + len(value)
		if !utf8.ValidString(name) || !utf8.ValidString(value) { // the record is JSON: names that differ here might be the same there
			return fmt.Errorf("metadata %s is not UTF-8: encode it", redact.Quote(name))
		}
	}
	switch {
	case size > maxMetadataBytes:
		return fmt.Errorf("metadata of %d bytes, the limit is %d", size, maxMetadataBytes)
	case o.Wait < 0:
		return fmt.Errorf("Wait is %s: want a positive duration, or 0 for no bound", o.Wait)
	}
	return kv.CheckTTL(o.TTL)
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
	// Set by NewLocker.
	store    *kv.Store
	isFresh  func() bool   // of store
	ttl      time.Duration // of most leases
	liveness *kv.Members
	member   string // the name of this Locker in records; their name in liveness, if others can probe them

	// Safe for concurrent use.
	pushedQueue lastQueue // of the last pushed record
	lastSent    atomic.Pointer[sentRecord]
	turns       chan struct{}  // has an element for each write or read under way that is not a holder's
	holderTurns chan struct{}  // the same for holders
	work        sync.WaitGroup // workers of agents
	closing     sync.Once

	mu     sync.Mutex // guards the fields below
	closed error
	agents map[string]*agent
	idle   list.List         // of unused agents, the one that was used last at the end
	known  map[string]uint64 // the last revisions of locks that have no agent
}

// NewLocker binds to the bucket and checks that its stream has settings with which locks are safe. Close ends it. It returns
// jetstream.ErrStreamNotFound when the bucket does not exist, and ErrUnavailable when no server answered within OpTimeout. Two round
// trips. Without the permission to publish and subscribe to
// "kvlock.alive.<bucket>.>" it takes a quarter of a second, and others do not find out when this process dies while it waits.
func NewLocker(ctx context.Context, js jetstream.JetStream, cfg LockerConfig) (*Locker, error) {
	base := kv.Config{Bucket: cfg.Bucket, Instance: cfg.Instance, Logger: cfg.Logger, OpTimeout: cfg.OpTimeout}.WithDefaults()
	l := &Locker{
		ttl: cmp.Or(cfg.TTL, defaultTTL), member: nuid.Next(), turns: make(chan struct{}, maxTurns), holderTurns: make(chan struct{}, maxTurns),
		agents: map[string]*agent{}, known: map[string]uint64{},
	}
	if err := errors.Join(base.Validate(), kv.CheckNamedTTL("kvlock: TTL", l.ttl)); err != nil {
		return nil, err
	}
	base.Pushed, base.Read, base.Remade = l.viewPushed, l.viewRead, l.remade
	var err error
	if l.store, err = kv.Open(ctx, js, base); err != nil {
		return nil, err
	}
	if l.liveness, err = kv.NewMembers(l.store, kv.ProbeEvery); err != nil {
		l.Close()
		return nil, fmt.Errorf("kvlock: bind bucket %q: %w", cfg.Bucket, err)
	}
	if self, _ := l.liveness.Self(); self != "" {
		l.member = self
	}
	l.isFresh = l.store.IsFresh
	return l, nil
}

// Close ends all waits with ErrClosed, ends the contexts of all leases, gives the locks back, and returns when that is
// done, or after twice OpTimeout: a lock that could not be given back is free when its TTL has passed. Calling it again
// does nothing.
func (l *Locker) Close() { l.closing.Do(l.close) }

func (l *Locker) close() {
	l.store.BeginClose()
	l.mu.Lock()
	l.closed = ErrClosed
	agents := slices.Collect(maps.Values(l.agents))
	l.mu.Unlock()

	by := time.Now().Add(l.store.OpTimeout)
	for _, one := range agents {
		one.shut(ErrClosed, by)
	}
	for _, one := range agents {
		<-one.ended
	}
	l.work.Wait()
	l.liveness.Close()
	l.store.Close()
}

// remade ends the leases that were taken in a former generation of the bucket.
func (l *Locker) remade() {
	l.mu.Lock()
	agents := slices.Collect(maps.Values(l.agents))
	clear(l.known)
	l.mu.Unlock()
	for _, one := range agents {
		one.remade()
	}
}

// TryAcquire takes the lock if it is free, and otherwise returns a [HeldError] that names the holder. One round trip
// for a free lock, two for a held one; two also for a free lock that others have used and this Locker has not used for long.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, opts, waiter{name: name, now: true})
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
	return l.acquire(ctx, opts, waiter{name: name})
}

// Steal takes the lock from its holder. The holder's context ends with ErrLost as soon as its process learns of that: for a moment both
// may work. It is for an operator who knows that the holder is gone, or has to go. The record names the instance that lost the lock. The
// queue stays as it is. Two round trips.
func (l *Locker) Steal(ctx context.Context, name string, opts AcquireOptions) (*Lease, error) {
	return l.acquire(ctx, opts, waiter{name: name, now: true, force: true})
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

// waiter is a call that wants a lock.
type waiter struct {
	// Set by acquire.
	AcquireOptions

	name   string
	now    bool // or not at all
	force  bool // and now
	values context.Context
	came   time.Time
	done   chan struct{} // closed when the wait has ended

	// The fields below are guarded by agent.mu until done is closed.
	touched bool       // the record was written for the waiter to learn the server's time
	list    *list.List // the list that has element; nil when the wait has ended
	element *list.Element
	lease   *Lease
	err     error
}

// acquire takes a lock for w. Callers get it in the order in which they came.
func (l *Locker) acquire(ctx context.Context, opts AcquireOptions, w waiter) (*Lease, error) {
	opts.TTL = cmp.Or(opts.TTL, l.ttl)
	err := errors.Join(kv.CheckKey(keyOf(w.name)), opts.validate())
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("kvlock: acquire lock %s: %w", redact.Quote(w.name), err)
	}
	// The caller may change its map later, and each renewal writes the metadata.
	opts.Metadata = maps.Clone(opts.Metadata)
	w.AcquireOptions, w.values, w.came, w.done = opts, context.WithoutCancel(ctx), time.Now(), make(chan struct{})
	one, serves, err := l.enter(&w)
	if err != nil {
		return nil, err
	}
	if serves {
		bound := l.store.OpTimeout
		if opts.Wait > 0 {
			bound = min(bound, opts.Wait)
		}
		one.serve(ctx, bound)
	}
	// A free lock was taken by serve. Only a caller that has to wait needs timers.
	select {
	case <-w.done:
		return w.lease, w.err
	default:
		return l.await(ctx, one, &w)
	}
}

// await waits for the end of a wait.
func (l *Locker) await(ctx context.Context, one *agent, w *waiter) (*Lease, error) {
	answer := time.NewTimer(time.Until(w.came.Add(l.store.OpTimeout)))
	defer answer.Stop()
	var over <-chan time.Time
	if w.Wait > 0 {
		t := time.NewTimer(time.Until(w.came.Add(w.Wait)))
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
			why = one.overdue(w)
		case <-answer.C:
			if why = one.unanswered(w); why == nil {
				continue
			}
		}
		if one.giveUp(w) {
			return nil, fmt.Errorf("kvlock: acquire %q: %w", w.name, why)
		}
		<-w.done
		return w.lease, w.err
	}
}

// enter adds the waiter to the agent of its lock. If serves is true, the caller has to work for the agent.
func (l *Locker) enter(w *waiter) (one *agent, serves bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return nil, false, l.closed
	}
	one = l.agents[w.name]
	if one == nil { // known has the revision of the lock's last marker: without it, the first write would be refused
		one = &agent{
			locker: l, name: w.name, key: keyOf(w.name), ended: make(chan struct{}),
			situation: situation{member: l.member, at: l.known[w.name], generation: l.store.Generation()},
		}
		l.agents[w.name] = one
	}
	if one.idle != nil {
		l.idle.Remove(one.idle)
		one.idle = nil
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	w.list = &one.waiters
	if w.now {
		w.list = &one.others
	}
	w.element = w.list.PushBack(w)
	one.used = w.came
	// The first caller works for the agent: that saves a switch to another goroutine and back.
	if one.phase == parked {
		one.phase, serves = working, true
	}
	return one, serves, nil
}

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
// It returns ErrLost when the lease had been lost before: another holder may have had the lock since. It returns
// ErrUnavailable when no server answered within LockerConfig.OpTimeout: the Locker then goes on trying, and the lock is
// free when its TTL has passed at the latest. One round trip.
func (l *Lease) Release(ctx context.Context) error {
	opTimeout := l.agent.locker.store.OpTimeout
	by := time.Now().Add(opTimeout)
	l.agent.mu.Lock()
	serves := false
	// The context has ended already after another call of Release, and when the lease was lost.
	if l.ctx.Err() == nil {
		l.release(ErrReleased)
		if l.agent.phase == parked {
			l.agent.phase, serves = working, true
		}
	}
	l.agent.mu.Unlock()
	if serves {
		l.agent.serve(ctx, opTimeout)
	}

	select {
	case <-l.done: // by serve, as a rule
	default:
		ctx, cancel := context.WithDeadlineCause(ctx, by, ErrUnavailable)
		defer cancel()
		select {
		case <-l.done:
		case <-ctx.Done():
			return fmt.Errorf("kvlock: release %q: %w", l.agent.name, context.Cause(ctx))
		}
	}
	if l.err != nil {
		return fmt.Errorf("kvlock: release %q: %w", l.agent.name, l.err)
	}
	return nil
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

// Lock is the state of a lock at the time of one read, for display. It is a hint: the lock may have changed since.
type Lock struct {
	Name     string            `json:"name"`
	Held     bool              `json:"-"`                    // held by an instance; a dead one was alive less than twice its TTL ago
	Granted  bool              `json:"granted,omitempty"`    // handed over to Holder, which has not confirmed it yet, and may hold it already
	Holder   string            `json:"holder"`               // the instance that holds the lock
	Lease    string            `json:"-"`                    // the id of the lease
	Metadata map[string]string `json:"metadata,omitempty"`   // AcquireOptions.Metadata of the holder; not written to
	Since    time.Time         `json:"since"`                // the time at which it was taken, by the holder's clock
	Expires  time.Time         `json:"expiresAt"`            // the time at which it is free unless the holder renews it, by the server's clock
	Stolen   string            `json:"stolenFrom,omitempty"` // the instance from which it was taken by force, if any
	Token    Token             `json:"token"`
	TTL      time.Duration     `json:"-"`
	Waiters  int               `json:"waiters"`
	Queue    []Waiting         `json:"queue,omitempty"` // the next first

	Revision uint64    `json:"-"` // of the record
	Written  time.Time `json:"-"` // the time at which the server stored the record
}

// Waiting is a series of waiters of one instance in the queue of a lock.
type Waiting struct {
	Instance string `json:"instance"`
	Waiters  int    `json:"waiters"`
}

// show converts the state of a lock for display.
func (l *Locker) show(s state) Lock {
	lock := Lock{Name: s.name, Revision: s.revision, Written: s.created}
	r := s.record
	if r == nil {
		return lock
	}
	lock.Held, lock.Granted, lock.Holder, lock.Lease = true, r.Granted, r.Instance, r.Lease
	lock.Metadata, lock.Stolen, lock.TTL = r.Metadata, r.Stolen, r.TTL
	lock.Since, lock.Expires = time.UnixMilli(r.Since).UTC(), s.created.Add(r.TTL).UTC()
	lock.Token = Token{Epoch: l.store.Generation(), Revision: r.takenAt(s.revision)}
	for _, run := range r.queue {
		lock.Waiters += run.places
		lock.Queue = append(lock.Queue, Waiting{Instance: run.instance, Waiters: run.places})
	}
	return lock
}

// Inspect returns the holder of a lock, the time since when it has held the lock, and the queue. One round trip.
func (l *Locker) Inspect(ctx context.Context, name string) (Lock, error) {
	key := keyOf(name)
	if err := kv.CheckKey(key); err != nil {
		return Lock{}, fmt.Errorf("kvlock: inspect lock %s: %w", redact.Quote(name), err)
	}
	s, err := l.ask(ctx, key)
	if err != nil {
		return Lock{}, err
	}
	return l.show(s), nil
}

// ask reads the state of a lock from the stream's leader.
func (l *Locker) ask(ctx context.Context, key string) (state, error) {
	e, err := l.store.Ask(ctx, key)
	if err != nil {
		return state{}, err
	}
	s := l.state(ctx, e)
	return s, s.err
}

// List yields the held locks whose names begin with prefix and a dot, or all held locks if prefix is "", in the order of their names. Each
// Lock is as from Inspect, but possibly older.
//
// It makes no consumer, and reads all records before it yields the first. A record that cannot be read is yielded with its name and the
// reason; an error with an empty lock comes last. The end of ctx ends the iteration.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[Lock, error] {
	return func(yield func(Lock, error) bool) {
		found, failed := map[string]state{}, map[string]error{}
		for e, err := range l.store.Scan(ctx, keyOf(prefix)) {
			if err != nil {
				yield(Lock{}, err)
				return
			}
			s, err := stateOf(e, nil)
			delete(found, s.name) // it was written in the meantime
			if !errors.Is(err, ErrMismatch) && (err != nil || s.record != nil) {
				found[s.name], failed[s.name] = s, err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(found)) {
			if !yield(l.show(found[name]), failed[name]) {
				return
			}
		}
	}
}

// setAside puts an unused agent aside, and ends those that were not used for long.
func (l *Locker) setAside(one *agent) {
	l.mu.Lock()
	var end []*agent
	one.mu.Lock()
	idle, leaves, closing := one.isIdle(), one.leaves(), one.closing != nil
	one.mu.Unlock()
	switch {
	case !idle:
	case closing || !time.Now().Before(leaves):
		end = append(end, one)
	case one.idle == nil:
		one.idle = l.idle.PushBack(one)
		if l.idle.Len() > maxIdle {
			end = append(end, l.idle.Front().Value.(*agent)) //nolint:forcetypeassert // only agents are in it
		}
	}
	end = slices.DeleteFunc(end, func(one *agent) bool { return !l.retire(one) })
	l.mu.Unlock()
	for _, one := range end {
		if one.watching {
			l.store.Hub.Remove(&one.watch)
		}
		close(one.ended)
	}
}

// retire ends an unused agent and remembers its revision. It reports whether the agent has ended: an agent in use stays. The caller holds
// mu.
func (l *Locker) retire(one *agent) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	if !one.isIdle() {
		return false
	}
	one.phase = dead
	if one.timer != nil {
		one.timer.Stop()
	}
	if one.idle != nil {
		l.idle.Remove(one.idle)
	}
	delete(l.agents, one.name)
	for name := range l.known {
		if len(l.known) < maxKnown {
			break
		}
		delete(l.known, name)
	}
	if one.rec == nil && one.at != 0 {
		l.known[one.name] = one.at
	}
	return true
}
