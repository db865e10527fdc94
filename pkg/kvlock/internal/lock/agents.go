// Package lock holds locks whose records are entries of a KV bucket: leases that are renewed, handed over in the order
// of the queue in the record, and taken over when their holder died. An agent for each lock decides on the next write (decide.go), and
// applies the outcome (apply.go). [Agents] has the agents of one process.
package lock

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/liveness"
)

const (
	// maxIdle bounds the unused locks that are followed.
	maxIdle = 256

	// maxTurns bounds the requests of holders of locks that are under way at once, and separately all others. With more requests the server
	// would answer so late that they time out and are repeated.
	maxTurns = 64

	// maxKnown bounds the remembered revisions of locks that are not followed.
	maxKnown = 4096
)

// Config configures [Agents]. All fields are required, and valid.
type Config struct {
	kv.Config

	TTL  time.Duration     // of most leases
	Held func(State) error // returns the error for a caller that is refused a lock in the given state
}

// Agents are the lock agents of one process on one bucket. Records name them together as one member.
type Agents struct {
	store    *kv.Store
	cfg      Config
	liveness *liveness.Members
	member   string // the name of these Agents in records; their name in liveness, if others can probe them

	isFresh func() bool // of store
	pushed  lastQueue
	written atomic.Pointer[written] // the last

	closing     sync.Once
	work        sync.WaitGroup // workers of agents
	turns       chan struct{}  // has an element for each write or read under way that is not a holder's
	holderTurns chan struct{}  // the same for holders

	mu     sync.Mutex
	closed error
	agents map[string]*agent
	idle   list.List         // of unused agents, the one that was used last at the end
	known  map[string]uint64 // the last revisions of locks that have no agent
}

// Open binds to the bucket. Close ends it. Two round trips.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Agents, error) {
	a := &Agents{
		cfg: cfg, member: nuid.Next(), turns: make(chan struct{}, maxTurns), holderTurns: make(chan struct{}, maxTurns),
		agents: map[string]*agent{}, known: map[string]uint64{},
	}
	cfg.Pushed, cfg.Read, cfg.Remade = a.viewPushed, a.viewRead, a.remade
	var err error
	if a.store, err = kv.Open(ctx, js, cfg.Config); err != nil {
		return nil, err
	}
	if a.liveness, err = liveness.New(a.store, liveness.Every); err != nil {
		a.Close()
		return nil, fmt.Errorf("kvlock: bind bucket %q: %w", cfg.Bucket, err)
	}
	if self, _ := a.liveness.Self(); self != "" {
		a.member = self
	}
	a.isFresh = a.store.IsFresh
	return a, nil
}

// Close ends all waits with ErrClosed, ends the contexts of all leases, gives the locks back, and returns when that is
// done, or after twice OpTimeout. Calling it again does nothing.
func (a *Agents) Close() { a.closing.Do(a.close) }

func (a *Agents) close() {
	a.store.BeginClose()
	a.mu.Lock()
	a.closed = kv.ErrClosed
	agents := slices.Collect(maps.Values(a.agents))
	a.mu.Unlock()

	by := time.Now().Add(a.cfg.OpTimeout)
	for _, one := range agents {
		one.shut(kv.ErrClosed, by)
	}
	for _, one := range agents {
		<-one.ended
	}
	a.work.Wait()
	if err := a.liveness.Close(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		a.store.Log.Warn("kvlock: unsubscribe", "error", err)
	}
	a.store.Close()
}

// remade ends the leases that were taken in a former generation of the bucket.
func (a *Agents) remade() {
	a.mu.Lock()
	agents := slices.Collect(maps.Values(a.agents))
	clear(a.known)
	a.mu.Unlock()
	for _, one := range agents {
		one.remade()
	}
}

// Generation returns the generation of the bucket, which is a part of its tokens.
func (a *Agents) Generation() uint64 { return a.store.Generation() }

// Inspect returns the state of a lock, read from the stream's leader. One round trip.
func (a *Agents) Inspect(ctx context.Context, name string) (State, error) {
	if err := CheckName(name); err != nil {
		return State{}, fmt.Errorf("kvlock: %w", err)
	}
	return a.ask(ctx, keyOf(name))
}

func (a *Agents) ask(ctx context.Context, key string) (State, error) {
	e, err := a.store.Ask(ctx, key)
	if err != nil {
		return State{}, err
	}
	s := a.state(ctx, e)
	return s, s.Err
}

// List calls yield for each lock whose name begins with prefix and a dot, or for all locks if prefix is "", held or
// free. A record that cannot be decoded comes with its name and the reason; an error with an empty state comes last.
func (a *Agents) List(ctx context.Context, prefix string, yield func(State, error) bool) {
	for e, err := range a.store.List(ctx, keyOf(prefix)) {
		if err != nil {
			yield(State{}, err)
			return
		}
		s, err := stateOf(e, nil)
		if !errors.Is(err, kv.ErrMismatch) && !yield(s, err) {
			return
		}
	}
}

// Request is a caller's request for a lock.
type Request struct {
	Name     string
	Now      bool // or not at all
	Force    bool // and Now
	TTL      time.Duration
	Wait     time.Duration // bounds the wait, in addition to the context; 0 for no bound
	Metadata map[string]string
}

// waiter is a call that wants a lock.
type waiter struct {
	Request

	touched bool // the record was written for the waiter to learn the server's time
	values  context.Context
	came    time.Time

	done chan struct{} // closed when it has ended

	// The fields below are guarded by agent.mu until done is closed.
	list    *list.List // the list that has element; nil when the wait has ended
	element *list.Element
	lease   *Lease
	err     error
}

// gone reports whether the wait has ended.
func (w *waiter) gone() bool { return w.list == nil }

// Acquire takes a lock. Callers get it in the order in which they came. The request has to be valid.
func (a *Agents) Acquire(ctx context.Context, r Request) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("kvlock: acquire %q: %w", r.Name, context.Cause(ctx))
	}
	w := &waiter{Request: r, values: context.WithoutCancel(ctx), came: time.Now(), done: make(chan struct{})}
	one, serves, err := a.enter(w)
	if err != nil {
		return nil, err
	}
	if serves {
		one.serve(ctx, a.patience(r.Wait))
	}
	return a.await(ctx, one, w)
}

// patience returns the time for which a caller may work for the agent: at most bound, if that is not 0.
func (a *Agents) patience(bound time.Duration) time.Duration {
	if bound > 0 {
		return min(bound, a.cfg.OpTimeout)
	}
	return a.cfg.OpTimeout
}

// await waits for the end of a wait.
func (a *Agents) await(ctx context.Context, one *agent, w *waiter) (*Lease, error) {
	select {
	case <-w.done:
		return w.lease, w.err
	default:
	}
	answer := time.NewTimer(time.Until(w.came.Add(a.cfg.OpTimeout)))
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
			return nil, fmt.Errorf("kvlock: acquire %q: %w", w.Name, why)
		}
		<-w.done
		return w.lease, w.err
	}
}

// enter adds the waiter to the agent of its lock. If serves is true, the caller has to work for the agent.
func (a *Agents) enter(w *waiter) (one *agent, serves bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return nil, false, a.closed
	}
	one = a.agents[w.Name]
	if one == nil {
		one = &agent{
			agents: a, name: w.Name, key: keyOf(w.Name), at: a.known[w.Name], generation: a.store.Generation(), ended: make(chan struct{}),
		}
		a.agents[w.Name] = one
	}
	if one.idle != nil {
		a.idle.Remove(one.idle)
		one.idle = nil
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	w.list = &one.waiters
	if w.Now {
		w.list = &one.others
	}
	w.element = w.list.PushBack(w)
	one.used = w.came
	serves = one.begin()
	return one, serves, nil
}

// rest puts an unused agent aside, and ends those that were not used for long.
func (a *Agents) rest(one *agent) {
	a.mu.Lock()
	var end []*agent
	one.mu.Lock()
	idle, leaves, closing := one.isIdle(), one.leaves(), one.closing != nil
	one.mu.Unlock()
	switch {
	case !idle:
	case closing || !time.Now().Before(leaves):
		end = append(end, one)
	case one.idle == nil:
		one.idle = a.idle.PushBack(one)
		if a.idle.Len() > maxIdle {
			end = append(end, a.idle.Front().Value.(*agent)) //nolint:forcetypeassert // only agents are in it
		}
	}
	end = slices.DeleteFunc(end, func(one *agent) bool { return !a.retire(one) })
	a.mu.Unlock()
	for _, one := range end {
		if one.watching {
			a.store.Hub.Remove(&one.watch)
		}
		close(one.ended)
	}
}

// retire ends an unused agent and remembers its revision. It reports whether the agent has ended: an agent in use stays. The caller holds
// mu.
func (a *Agents) retire(one *agent) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.dead || !one.isIdle() {
		return false
	}
	one.dead = true
	if one.timer != nil {
		one.timer.Stop()
	}
	if one.idle != nil {
		a.idle.Remove(one.idle)
	}
	delete(a.agents, one.name)
	for name := range a.known {
		if len(a.known) < maxKnown {
			break
		}
		delete(a.known, name)
	}
	if one.rec == nil && one.at != 0 {
		a.known[one.name] = one.at
	}
	return true
}
