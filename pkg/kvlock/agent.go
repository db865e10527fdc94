package kvlock

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// agent is one lock as one member, a Locker, sees it: the last known record, the waiters of this process, and the lease in hand. A process
// writes the record of a lock only through its agent, one write at a time. One write may take, renew, hand on or confirm a lease, and take
// or leave places in the queue.
//
// Each write is recomputed from the last known record (decide, compose). So an agent need not remember a write whose outcome is
// unknown: the record shows it. These rules keep two members from holding a lock:
//
//  1. A record replaces only the record from which it was computed. Every write is conditional on the revision of that record. Only an
//     acknowledgement makes a lease of a write: never a read, never a push, never a refusal. Rule 4 has the one exception.
//  2. A lease begins, or is renewed, at the time its write was first sent. It ends its ttl less a margin later on the holder's monotonic
//     clock (kv.Deadline). A second try of the write, because the outcome of the first was unknown, does not extend the lease: others may
//     have seen the first. A timer ends the context even while the holder waits for a server.
//  3. Other members leave a lease alone until its whole ttl has passed since they first saw it (observedLease): the holder sent it before
//     that. Only a renewal by the holder extends that time; a write about the queue does not. The rule also holds for a missing record: a
//     release leaves a marker, and the server's TTL is twice the lease's.
//  4. A lock that was handed over belongs to its new member for grantTTL: others leave it alone for that time after they first saw the
//     hand-over (rule 3), so at least for that time after it was stored. The member does not know the time of storing: the push may have
//     been under way for long. But it knows the time of its last acknowledged write, before the hand-over; and a record with a greater
//     revision was stored after that. So a lease that begins with that write, for grantTTL, ends in time (accept). If too little of it is
//     left, as after a long wait, the member has the lock when it has confirmed it by its own write. Otherwise it has the lock at
//     once, confirms it soon after, and loses it when no confirmation is acknowledged.
//  5. The context of a lease ends before the agent sends the write that gives the lock away.
//  6. If the record has this member as the holder, and no lease is in hand, the lock is taken for a waiter, or given back.
//
// And these keep a caller from waiting in vain. Each agent that waits has a timer for its next action. The hub reads its key every second
// or two, or knows that no push is missing. Places in the queue are read from the record and not remembered, so that a missing place is
// taken again.
type agent struct {
	situation // guarded by mu

	// Set at the start.
	locker *Locker
	name   string
	key    string        // of its record
	ended  chan struct{} // closed when it is retired

	idle *list.Element // its place among the unused agents; guarded by Locker.mu

	// Owned by the worker, then by the goroutine that retires the agent.
	watch    kv.Watch
	watching bool // watch was added to the hub
	resting  bool // as the hub has it

	mu            sync.Mutex // guards the fields below; locked after Locker.mu and the hub's mu; never held during a request
	pushed        state      // the last state that the hub delivered
	lastWrite     lastWrite  // the last acknowledged write before the lock was handed to this member
	acceptedGrant string     // the last lease that was accepted without a write: a second acceptance would have the same token
	tries         int        // the number of refused writes in a row
	phase         phase
	used          time.Time   // when a caller last wanted or had the lock
	timer         *time.Timer // starts the worker when something is due
}

// phase is what the worker of an agent does.
type phase uint8

const (
	parked  phase = iota // there is none; a caller, a push or the timer starts one
	working              //
	inLine               // it waits for its turn at the server, for an unknown time
	dead                 // the agent is retired, and starts none any more
)

// lastWrite has the time at which a write was first sent, and the revision of the write.
type lastWrite struct {
	sent time.Time
	at   uint64
}

// The times of an agent, beside the TTLs of leases.
const (
	// grantTTL is the time for which a lock is kept for the member to which it was handed.
	grantTTL = time.Second

	// takeOverStep is the delay of each member of the queue behind the member before it when they take the lock of a dead holder, so that
	// only one does. Members that are found to be gone do not count.
	takeOverStep = 100 * time.Millisecond

	// answerTime is the time that a holder gets to renew after a request to do so. No clock shortens it: clocks may have been set.
	answerTime = time.Second

	// acceptFor is the least time left of a lease that is accepted without a confirmation: a confirmation that takes longer loses the lease.
	acceptFor = grantTTL / 2

	// confirmAfter is the time between accepting and confirming a lease: a lease that ends sooner needs no write.
	confirmAfter = 10 * time.Millisecond

	// lingering is the time for which the record of an unused lock is still followed, so that the next use knows its revision.
	lingering = 5 * time.Second

	// Bounds of the wait between two tries of a write that was refused because another member wrote.
	minContention = 250 * time.Microsecond
	maxContention = 4 * time.Millisecond
)

// start makes sure that a worker runs. The caller holds mu.
func (a *agent) start() {
	if a.phase == parked {
		a.phase = working
		a.locker.work.Go(a.run)
	}
}

// onTimer starts the worker.
func (a *agent) onTimer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.start()
}

// Deliver takes a state of the lock from the hub, which is locked.
func (a *agent) Deliver(value any, _ bool) {
	s := value.(*state) //nolint:forcetypeassert // view makes nothing else
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.follows(&a.pushed) {
		a.pushed = *s
	}
	a.learn(*s, false)
	if a.phase != parked {
		return
	}
	if a.closing != nil { // its worker retires the agent
		a.start()
		return
	}
	now := time.Now()
	if next := a.advance(now); next.do != nothing {
		a.start()
	} else {
		a.wakeAt(now, next.when)
	}
}

// Knows reports whether the hub need not read the record: always, because the agent reads it itself.
func (a *agent) Knows(string) bool { return true }

// Wake does nothing: Locker.Close ends the agent.
func (a *agent) Wake() {}

// run takes steps until there is nothing to do.
func (a *agent) run() {
	if !a.watching && !a.follow() {
		return
	}
	for {
		switch a.park() {
		case busy:
			a.act()
		case inUse:
			return
		case unused:
			a.locker.setAside(a)
			return
		}
	}
}

// follow subscribes the agent to its lock, and reports whether that succeeded; if not, it ended the agent.
func (a *agent) follow() bool {
	a.watch = kv.Watch{Keys: []string{a.key}, To: a}
	err := a.locker.store.Hub.AddNow(&a.watch)
	if err == nil {
		a.watching, a.resting = true, true
		return true
	}
	a.mu.Lock()
	a.endAll(err)
	a.phase = parked
	a.mu.Unlock()
	a.locker.setAside(a)
	return false
}

// standing is how an agent is left when its worker has looked for work.
type standing uint8

const (
	busy   standing = iota // something is due
	inUse                  // callers wait or have the lock: one of them, a push or the timer starts the next worker
	unused                 // the Locker may retire the agent
)

// park ends the work unless something is due, and sets the timer for the next action.
func (a *agent) park() standing {
	a.mu.Lock()
	defer a.mu.Unlock()
	// The hub reads the record less often while nobody here waits for it.
	if resting := a.waiters.Len() == 0; resting != a.resting {
		a.resting = resting
		a.mu.Unlock() // the hub's mu is locked before the agent's
		a.locker.store.Hub.Rest(&a.watch, resting)
		a.mu.Lock()
	}
	now := time.Now()
	next := a.advance(now)
	// A waiter may have come while mu was unlocked, and needs the hub to read more often again.
	if next.do != nothing || a.resting != (a.waiters.Len() == 0) {
		return busy
	}
	a.phase = parked
	idle := a.isIdle()
	// An agent that may leave now is retired by the caller. A timer, due at once, would start workers for as long as others delay that.
	if !idle || !next.when.IsZero() || now.Before(a.leaves()) {
		a.wakeAt(now, next.when)
	}
	if idle {
		return unused
	}
	return inUse
}

// advance takes the steps that need no request, and returns the next step. The caller holds mu.
func (a *agent) advance(now time.Time) step {
	for {
		next := a.decide(now)
		switch next.do {
		case surrender:
			a.end(a.lease, errors.Join(ErrUnavailable, a.failure))
		case forget:
			a.at, a.rec, a.observed, a.held = 0, nil, observedLease{}, time.Time{}
		case refuse:
			for w := front(&a.others); w != nil; w = front(&a.others) {
				a.finish(w, nil, a.heldError())
			}
		default: // it needs a request, or is nothing
			return next
		}
	}
}

// act waits for this agent's turn to use the server, and only then takes the step that is due: it may be another by then.
func (a *agent) act() {
	turns := a.turn()
	defer func() { <-turns }()
	a.mu.Lock()
	a.phase = working
	now := time.Now()
	next := a.advance(now)
	switch next.do {
	case nothing:
		a.mu.Unlock()
	case look:
		at := a.at
		a.mu.Unlock()
		a.lookAt(at)
	case probe:
		lease, before := a.rec.Lease, a.before()
		a.mu.Unlock()
		a.probeAll(lease, before)
	default: // a write
		t := a.compose(next, now)
		a.mu.Unlock()
		if t.err == nil {
			t.began = time.Now()
			ctx := context.Background() //nolint:forbidigo // bound by the store
			t.revision, _, t.err = a.locker.store.Write(ctx, t.change)
		}
		a.apply(t)
	}
}

// wakeAt sets the timer to the time of the next action, or else to the time at which the agent may be retired.
func (a *agent) wakeAt(now, when time.Time) {
	if when.IsZero() {
		when = a.leaves()
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(when.Sub(now), a.onTimer)
		return
	}
	a.timer.Reset(when.Sub(now))
}

// leaves returns the time at which an unused agent may be retired. An agent stays while it knows how long another member's lease is to be
// left alone: otherwise a caller that asks now and then could never take over.
func (a *agent) leaves() time.Time {
	leaves := a.used.Add(lingering)
	if after := a.observed.expiresAt.Add(lingering); after.After(leaves) {
		return after
	}
	return leaves
}

// isIdle reports whether the agent is unused.
func (a *agent) isIdle() bool {
	return a.phase == parked && a.lease == nil && a.waiters.Len() == 0 && a.others.Len() == 0
}

// turn waits until the agent may use the server, and returns the channel from which to take an element after that.
func (a *agent) turn() chan struct{} {
	a.mu.Lock()
	turns := a.locker.turns
	if a.lease != nil {
		turns = a.locker.holderTurns // a renewal must not wait behind those that want a lock
	}
	select {
	case turns <- struct{}{}:
		a.mu.Unlock()
	default:
		a.phase = inLine
		a.mu.Unlock()
		turns <- struct{}{}
	}
	return turns
}

// serve runs the agent in the goroutine of a caller that became the worker, which saves a switch to another goroutine and back. It sends
// one write at most, and waits no longer for it than ctx and bound allow. It leaves the rest to a new goroutine.
func (a *agent) serve(ctx context.Context, bound time.Duration) {
	work, turns, store := &a.locker.work, a.locker.turns, a.locker.store
	work.Add(1)
	defer work.Done()
	if !a.watching && !a.follow() {
		return
	}
	// The caller's context may end before a turn is free: act waits for it in another goroutine.
	select {
	case turns <- struct{}{}:
	default:
		work.Go(a.run)
		return
	}
	var t *transaction
	a.mu.Lock()
	now := time.Now()
	if next := a.advance(now); next.do >= take && ctx.Err() == nil {
		t = a.compose(next, now)
	}
	a.mu.Unlock()
	// Reads are for the worker. A write that cannot be sent is one as well: the worker composes it again, and reports why.
	if t == nil || t.err != nil {
		<-turns
		work.Go(a.run)
		return
	}
	t.began = time.Now()
	if t.revision, t.err = store.SendOnce(ctx, t.change, bound); t.err != nil {
		// Whether the write was made takes longer to find out than this caller may want to wait.
		work.Go(func() {
			ctx := context.Background() //nolint:forbidigo // bound by the store
			t.revision, _, t.err = store.Settle(ctx, t.change, t.began, time.Now(), t.err)
			a.apply(t)
			<-turns
			a.run()
		})
		return
	}
	a.apply(t)
	<-turns
	switch a.park() {
	case busy: // other callers came, or the record changed, while the write was under way
		work.Go(a.run)
	case inUse:
	case unused:
		a.locker.setAside(a)
	}
}

// apply applies the outcome of a write.
func (a *agent) apply(t *transaction) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var conflict *kv.ConflictError
	switch {
	case t.err == nil:
		a.looked, a.failure, a.tries = t.began, nil, 0
		// A lease that is accepted without a write begins with this one: see rule 4. A write that hands the lock to this member is too late.
		if t.next == nil || !t.next.Granted || t.next.Member != a.member {
			a.lastWrite = lastWrite{sent: t.began, at: t.revision}
		}
		a.acknowledged(t)
	case errors.As(t.err, &conflict):
		a.looked, a.failure = t.began, nil
		t.read.revision = conflict.Revision
		a.learn(t.read, a.at == t.change.Expect)
		a.tries++
		// A first refusal only shows that the record was old. After more of them others write all the time. Nobody else writes
		// much over a record of this member.
		if a.tries > 1 && !t.mine {
			a.notBefore = time.Now().Add(rand.N(retry.Wait(a.tries, minContention, maxContention)))
		}
	default:
		a.failed(t.err)
	}
}

// acknowledged applies an acknowledged write.
func (a *agent) acknowledged(t *transaction) {
	// Otherwise a push of a later record has overtaken the acknowledgement.
	if t.revision > a.at || t.change.Expect == a.at {
		if !t.next.sameLease(a.rec) {
			a.observed = newObservedLease(t.next, time.Now())
		}
		a.at, a.created, a.rec = t.revision, time.Time{}, t.next
		a.held = t.began.Add(t.change.TTL - time.Second) // a second for the server's clock
	}
	// The lease that was in hand when the write was composed is renewed, given back, or taken by another caller of this process.
	if t.lease != nil && t.lease == a.lease {
		switch {
		case t.next != nil && t.next.Lease == t.lease.id:
			t.lease.extend(t.began)
		case t.lease.releasing:
			a.end(t.lease, nil)
		default:
			a.lose(t.lease, fmt.Errorf("%w: lock %q was taken by force in this process", ErrLost, a.name))
		}
	}
	// The caller has gone, or another member has taken the lock since: the next step gives it back, or waits.
	if t.taker == nil || t.taker.list == nil || a.rec == nil || a.rec.Lease != t.next.Lease {
		return
	}
	// The acknowledgement may come too late: others may have the lock by now.
	until := kv.Deadline(t.began, t.next.TTL)
	if !time.Now().Before(until) {
		return
	}
	a.hand(t.taker, &Lease{
		id: t.next.Lease, ttl: t.next.TTL, deadline: until, renewAt: t.began.Add(t.next.TTL / 3),
		token: Token{Epoch: a.generation, Revision: t.revision},
	})
}

// lookAt reads the record, last known at revision at, from the stream's leader.
func (a *agent) lookAt(at uint64) {
	began := time.Now()
	s, err := a.locker.ask(context.Background(), a.key) //nolint:forbidigo // bound by the store
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed(err)
		return
	}
	a.looked = began
	a.learn(s, a.at == at)
}

// probeAll finds out which members before this one are gone, for the lease in the record.
func (a *agent) probeAll(lease string, before []string) {
	gone := a.locker.liveness.Gone(a.locker.store.Closing, before)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rec != nil && a.rec.Lease == lease {
		a.observed.probed, a.observed.gone = true, gone
	}
}

// failed records an error that does not tell the state of the record. If another try cannot help, it ends all waits.
func (a *agent) failed(err error) {
	a.failure = err
	a.notBefore = time.Now().Add(kv.RetryWait)
	if jsapi.IsPermanent(err) || !errors.Is(err, ErrUnavailable) {
		a.endAll(err)
		if a.lease != nil && a.lease.releasing {
			a.end(a.lease, err)
		}
	}
}

// learn applies a state of the record from a read, a push or a refused write. A state older than the last known one
// counts only with force: an answer of the leader to a question that began at the last known revision. If that has changed since,
// a push overtook the answer, and may already have this member as the holder.
func (a *agent) learn(s state, force bool) {
	if s.err != nil {
		a.endAll(s.err)
		return
	}
	a.stale = a.stale && !force
	switch {
	case s.revision == a.at && s.revision != 0 && s.record.sameLease(a.rec):
		if a.created.IsZero() {
			a.created = s.created
			a.observed.shorten(a.rec, s)
		}
		if force {
			a.generation = a.locker.store.Generation()
		}
		return
	case !force && a.older(s):
		return
	}
	switch {
	case s.revision == 0 && !a.isMine(): // nobody released it: its holder may still have it, so the lease stays observed
	case s.record == nil, !s.record.sameLease(a.rec):
		a.observed = newObservedLease(s.record, s.seen)
	}
	a.at, a.generation, a.created, a.rec, a.held = s.revision, a.locker.store.Generation(), s.created, s.record, time.Time{}
	a.observed.shorten(a.rec, s)
	if l := a.lease; l != nil && (a.rec == nil || a.rec.Lease != l.id) {
		if l.releasing {
			a.end(l, nil)
		} else {
			a.lose(l, a.loss())
		}
	}
	a.accept(s.seen)
}

// accept gives a lock that was handed to this member to the first waiter, without a write, if the lease holds for long enough to be
// confirmed. The lease begins with a write of ours that is older than the hand-over: see rule 4. The generation in its token has to be
// known.
func (a *agent) accept(now time.Time) {
	if a.phase == inLine || a.lease != nil || a.closing != nil || !a.isMine() || !a.rec.Granted || a.waiters.Len() == 0 ||
		a.acceptedGrant == a.rec.Lease {
		return
	}
	until := kv.Deadline(a.lastWrite.sent, grantTTL)
	// A write after the hand-over proves nothing about when that was stored.
	if a.lastWrite.at == 0 || a.lastWrite.at >= a.rec.takenAt(a.at) || until.Sub(now) < acceptFor || !a.locker.isFresh() {
		return
	}
	a.acceptedGrant = a.rec.Lease
	w := front(&a.waiters)
	a.hand(w, &Lease{
		id: a.rec.Lease, ttl: w.TTL, deadline: until, renewAt: now.Add(confirmAfter),
		token: Token{Epoch: a.generation, Revision: a.rec.takenAt(a.at)},
	})
}

// older reports whether s is not later than the last known state. A state of a seemingly new bucket, or a record that is missing too
// early, does not count either, but makes the agent ask the server. With a lease in hand it renews the lease, which proves more than a
// read.
func (a *agent) older(s state) bool {
	switch {
	case s.revision > a.at:
		return false
	case s.revision == a.at: // another record with the same revision
	case s.revision == 0 && a.lease == nil && !time.Now().Before(a.held):
		return false
	case s.revision != 0 && (a.created.IsZero() || !s.created.After(a.created)):
		return true
	}
	if a.lease != nil {
		a.lease.renewAt = time.Time{}
	} else {
		a.stale = true
	}
	return true
}

// remade ends a lease that was taken in a former generation of the bucket.
func (a *agent) remade() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.lease; l != nil && !l.releasing && l.token.Epoch < a.locker.store.Generation() {
		a.lose(l, fmt.Errorf("%w: the bucket of lock %q was recreated, or marked as restored", ErrLost, a.name))
	}
	a.stale = true
	a.start()
}

func (a *agent) loss() error {
	if a.rec == nil {
		return fmt.Errorf("%w: lock %q was removed, or has expired", ErrLost, a.name)
	}
	how := "was taken over"
	if a.rec.Stolen != "" {
		how = "was taken by force"
	}
	return fmt.Errorf("%w: lock %q %s by %s", ErrLost, a.name, how, a.rec.Instance)
}

// hand gives a lease to a waiter.
func (a *agent) hand(w *waiter, l *Lease) {
	l.agent, l.metadata, l.taken, l.done = a, w.Metadata, time.Now(), make(chan struct{})
	l.ctx, l.cancel = context.WithCancelCause(w.values)
	l.timer = time.AfterFunc(time.Until(l.deadline), l.expire)
	a.lease = l
	a.finish(w, l, nil)
}

// finish ends a wait.
func (a *agent) finish(w *waiter, l *Lease, err error) {
	w.list.Remove(w.element)
	w.list = nil
	w.lease, w.err = l, err
	close(w.done)
}

// endAll ends all waits.
func (a *agent) endAll(err error) {
	for w := cmp.Or(front(&a.waiters), front(&a.others)); w != nil; w = cmp.Or(front(&a.waiters), front(&a.others)) {
		a.finish(w, nil, err)
	}
}

// lose ends a lease that this member lost.
func (a *agent) lose(l *Lease, cause error) {
	l.cancel(cause)
	a.end(l, cause)
}

// end ends the lease in hand. Release returns err.
func (a *agent) end(l *Lease, err error) {
	l.timer.Stop()
	l.err = err
	close(l.done)
	a.lease, a.used = nil, time.Now()
}

// shut ends the use of the lock. The agent's goroutine then releases the lease.
func (a *agent) shut(cause error, by time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closing, a.closeBy = cause, by
	a.endAll(cause)
	if l := a.lease; l != nil && !l.releasing {
		l.release(cause)
	}
	a.start()
}

// giveUp ends a wait whose caller leaves, and reports whether it did: the wait may have ended already.
func (a *agent) giveUp(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.list == nil {
		return false
	}
	a.finish(w, nil, nil)
	a.used = time.Now()
	a.start()
	return true
}

// unanswered returns the reason that no server answered since the waiter came; nil if one did.
func (a *agent) unanswered(w *waiter) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	queued := a.rec != nil && a.isQueued()
	if !w.now && (a.lease != nil || queued || !a.looked.Before(w.came)) {
		return nil
	}
	return a.silence(w)
}

// silence returns the error for a waiter that no server has answered. The caller holds mu.
func (a *agent) silence(w *waiter) error {
	if errors.Is(a.failure, ErrUnavailable) {
		return a.failure
	}
	return fmt.Errorf("%w: no answer within %s", ErrUnavailable, time.Since(w.came).Round(time.Millisecond))
}

// overdue returns the error for a waiter whose time is over: another member holds the lock, or the bucket has not answered since the
// waiter came.
func (a *agent) overdue(w *waiter) error {
	heard := a.locker.store.Hub.Silence() < time.Since(w.came)
	a.mu.Lock()
	defer a.mu.Unlock()
	if heard || a.lease != nil || !a.looked.Before(w.came) {
		return a.heldError()
	}
	return a.silence(w)
}

// heldError returns the error for a caller that wanted the lock while another member holds it. The caller holds mu.
func (a *agent) heldError() error {
	return &HeldError{Lock: a.locker.show(state{name: a.name, revision: a.at, created: a.created, record: a.rec})}
}
