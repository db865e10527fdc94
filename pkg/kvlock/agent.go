package kvlock

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// agent is one lock as one member, a Locker, sees it: the last known record, the waiters of this process, and the lease in hand. A process
// writes the record of a lock only through its agent, one write at a time. One write may take, renew, hand on or confirm a lease, and take
// or leave places in the queue.
//
// Each write is computed anew from the last known record (decide, compose). So an agent need not remember a write whose outcome is
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
//     left, as after a long wait, the member has the lock when it has confirmed it by a write of its own. Otherwise it has the lock at
//     once, confirms it soon after, and loses it when no confirmation is acknowledged.
//  5. The context of a lease ends before the agent sends the write that gives the lock away.
//  6. If the record has this member as the holder, and no lease is in hand, the lock is taken for a waiter, or given back.
//
// And these keep a caller from waiting in vain. Each agent that waits has a timer for its next action. The hub reads its key every second
// or two, or knows that no push is missing. Places in the queue are read from the record and not remembered, so that a missing place is
// taken again.
type agent struct {
	locker *Locker
	name   string
	key    string // of its record

	watch    kv.Watch      // used by the worker, then by the goroutine that retires the agent
	watching bool          // as the next
	resting  bool          // as the hub knows it
	idle     *list.Element // guarded by Locker.mu

	mu         sync.Mutex // locked after Locker.mu and the hub's mu; never held during a request
	at         uint64     // the revision of the last known record; before the first record, the last revision of an earlier agent
	generation uint64     // the generation of the bucket in which at is a revision
	created    time.Time  // the time at which the server stored the record; zero when that is unknown
	rec        *record
	observed   observedLease
	held       time.Time // the time until which revision at, if acknowledged to us, cannot have expired
	pushed     state     // the last state that the hub delivered
	looked     time.Time // the time at which the last answered read or write of the record began
	stale      bool      // the record may be another, older than the last known
	failure    error     // the error of the last write, unless another member wrote

	taker         *waiter   // the waiter for which the agent last tried to take the lock
	pendingLease  string    // with which lease
	lastWrite     lastWrite // the last acknowledged write before the lock was handed to this member
	acceptedGrant string    // the last lease that was accepted without a write: a second acceptance would have the same token

	lease   *Lease        // the one in hand
	waiters list.List     // of *waiter: waiters for their turn
	others  list.List     // of *waiter: callers that want the lock now or not at all, or by force
	rest    time.Time     // the time of the next write that is not about a lease in hand
	tries   int           // the number of refused writes in a row
	working bool          // a worker runs
	inLine  bool          // the agent waits for its turn, for an unknown time
	closing error         // the reason that no waiter gets the lock any more
	closeBy time.Time     // when the worker gives up
	dead    bool          // nothing may be started any more
	ended   chan struct{} // closed when it is dead
	used    time.Time     // the time at which a caller last wanted or had the lock
	timer   *time.Timer   // starts the worker when something is due
}

// lastWrite has the time at which a write was first sent, and the revision of the write.
type lastWrite struct {
	sent time.Time
	at   uint64
}

// observedLease tells how long members that do not hold it leave the lease in a record alone.
type observedLease struct {
	probedAt  time.Time // the time at which this process first saw that the holder was asked for a renewal
	expiresAt time.Time

	probed bool     // the members before this one were probed after that
	gone   []string // the probed members that are gone
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
	if a.begin() {
		a.spawn(a.run)
	}
}

// begin reports whether the caller becomes the worker, because there is none. The caller holds mu.
func (a *agent) begin() bool {
	if a.working || a.dead {
		return false
	}
	a.working = true
	return true
}

// spawn runs work in a goroutine that Close waits for.
func (a *agent) spawn(work func()) { a.locker.work.Go(work) }

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
	if a.working || a.dead {
		return
	}
	if a.closing != nil {
		a.start()
		return
	}
	now := time.Now()
	if do, _, when := a.decide(now); do != nothing {
		a.start()
	} else {
		a.wakeAt(now, when)
	}
}

// Knows reports whether the hub need not read the record: always, because the agent reads it itself.
func (a *agent) Knows(string) bool { return true }

// Wake does nothing: Locker.Close ends the agent.
func (a *agent) Wake() {}

// run takes steps until there is nothing to do.
func (a *agent) run() {
	if !a.follow() {
		return
	}
	for !a.rests() {
		a.act()
	}
	a.locker.rest(a)
}

// follow subscribes the agent to its lock, and reports whether that succeeded; if not, it ended the agent.
func (a *agent) follow() bool {
	if a.watching {
		return true
	}
	a.watch = kv.Watch{Keys: []string{a.key}, To: a}
	if err := a.locker.store.Hub.AddNow(&a.watch); err != nil {
		a.abandon(err)
		return false
	}
	a.watching, a.resting = true, true
	return true
}

// rests ends the work if there is nothing to do, and reports whether it ended.
func (a *agent) rests() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if resting := a.waiters.Len() == 0; resting != a.resting {
		a.resting = resting
		a.mu.Unlock()
		a.locker.store.Hub.Rest(&a.watch, resting)
		a.mu.Lock()
	}
	now := time.Now()
	do, _, when := a.decide(now)
	if do != nothing || a.resting != (a.waiters.Len() == 0) {
		return false
	}
	a.working = false
	if when.IsZero() && a.isIdle() && !now.Before(a.leaves()) {
		return true // the agent is retired now: a due timer would start workers for as long as others delay that
	}
	a.wakeAt(now, when)
	return true
}

// act waits for this agent's turn to use the server, and only then decides what to do, and does it.
func (a *agent) act() {
	turns := a.turn()
	defer func() { <-turns }()
	a.mu.Lock()
	a.inLine = false
	now := time.Now()
	switch do, w, _ := a.decide(now); do {
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
	case take, renew, pass, queueUp, touch:
		t := a.compose(do, w, now)
		a.mu.Unlock()
		a.apply(t, a.send(t))
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

// turn waits until the agent may use the server, and returns the channel from which to take an element after that. An agent with a lease
// in hand does not wait behind agents that want one.
func (a *agent) turn() chan struct{} {
	a.mu.Lock()
	turns := a.locker.turns
	if a.lease != nil {
		turns = a.locker.holderTurns
	}
	select {
	case turns <- struct{}{}:
		a.mu.Unlock()
	default:
		a.inLine = true
		a.mu.Unlock()
		turns <- struct{}{}
	}
	return turns
}

// send sends a transaction until its outcome is known.
func (a *agent) send(t *transaction) error {
	if t.err != nil {
		return t.err
	}
	t.began = time.Now()
	ctx := context.Background() //nolint:forbidigo // bound by the store
	var err error
	if t.revision, err = a.locker.store.SendOnce(ctx, t.change, a.locker.store.OpTimeout); err != nil {
		return a.settle(t, err, t.began)
	}
	return nil
}

// settle is the rest of send, after a first try that ended with the error last. The time of the operation counts from since.
func (a *agent) settle(t *transaction, last error, since time.Time) (err error) {
	t.revision, _, err = a.locker.store.Settle(context.Background(), t.change, t.began, since, last) //nolint:forbidigo // bound by the store
	return err
}

// serve runs the agent in the goroutine of a caller that became the worker, which saves a switch to another goroutine and back. It sends
// one write at most, and waits no longer for it than ctx and bound allow. It leaves the rest to a new goroutine.
func (a *agent) serve(ctx context.Context, bound time.Duration) {
	a.locker.work.Add(1)
	defer a.locker.work.Done()
	if !a.follow() {
		return
	}
	var t *transaction
	if ctx.Err() == nil {
		t = a.first()
	}
	if t == nil {
		a.spawn(a.run)
		return
	}
	t.began = time.Now()
	var err error
	if t.revision, err = a.locker.store.SendOnce(ctx, t.change, bound); err != nil {
		a.spawn(func() {
			a.apply(t, a.settle(t, err, time.Now()))
			<-a.locker.turns
			a.run()
		})
		return
	}
	a.apply(t, nil)
	<-a.locker.turns
	if a.rests() {
		a.locker.rest(a)
	} else {
		a.spawn(a.run)
	}
}

// first returns the write that is to be sent now, nil if there is none or the agent has to wait for its turn.
func (a *agent) first() *transaction {
	select {
	case a.locker.turns <- struct{}{}:
	default:
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if do, w, _ := a.decide(now); do != nothing && do != look && do != probe {
		if t := a.compose(do, w, now); t.err == nil {
			return t
		}
	}
	<-a.locker.turns
	return nil
}
