package lock

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// agent is one lock as one member sees it: the last known record, the waiters of this process, and the lease in hand. A
// process writes about a lock only through its agent, one write at a time: taking, renewing, handing on or confirming a
// lease, and taking or leaving places in the queue are put together into one record.
//
// Each write is computed anew from the last known record (decide, compose). So nothing has to be remembered of a write
// whose outcome is unknown: the record shows it. These rules keep two members from holding a lock:
//
//  1. A record replaces only the one that it was computed from. Every write is conditional on that one's revision, and
//     only an acknowledgement makes a lease of it: never a read, never a push, never a refusal. But for rule 4.
//  2. A lease begins, and begins anew, when a write that says so was sent first, and ends its ttl less a margin later
//     on the holder's monotonic clock (kv.Deadline). Sending it again, because its outcome was unknown, does not extend
//     the lease: others may have seen the first. A timer ends the context even while the holder waits for a server.
//  3. Other members leave a lease alone until its whole ttl has passed since they first saw it (observedLease): the
//     holder sent it before that. Only a renewal by the holder extends that time; a write about the queue does not. The
//     rule holds also when the record is missing: releasing leaves a marker, and the server's TTL is twice the lease's.
//  4. A lock that was handed over belongs to its new member for grantTTL: others leave it alone for that long from when
//     they first saw it (rule 3), so at least from when it was stored. The member cannot know when that was: the push
//     with the grant may have been under way for long. But the member knows when it sent its last acknowledged write, in
//     which the lock was not yet handed to it; and a record with a greater revision was stored after that. So a lease
//     that begins with that write, for grantTTL, ends in time (accept). Where too little of it is left, as after a long
//     wait, the member has the lock when it has confirmed it by a write of its own. Where it has the lock at once it
//     confirms it soon after, and loses it when no confirmation is acknowledged.
//  5. A lease's context ends before the write is sent that gives the lock away.
//  6. A lock that the record shows as held by this member, without a lease in hand, is taken for a waiter, or given
//     back.
//
// And these keep a caller from waiting in vain: each agent that waits has a timer for its next action; the hub reads
// its key every second or two, or knows that no push is missing; and places in the queue are read from the record and
// not remembered, so that a missing one is taken again.
type agent struct {
	agents *Agents
	name   string
	key    string // of its record

	watch    kv.Watch      // of the worker, then of the goroutine that retires the agent
	watching bool          // as the next
	resting  bool          // as the hub knows it
	idle     *list.Element // guarded by Agents.mu

	mu         sync.Mutex // taken after Agents.mu and the hub's; nothing is sent or asked with it held
	at         uint64     // the revision of the last known record; before the first one, the last revision of an earlier agent
	generation uint64     // of the bucket in which that is a revision
	created    time.Time  // when the server stored it; zero when that is unknown
	rec        *Record
	observed   observedLease
	held       time.Time // until when revision at, which was acknowledged to us, cannot have expired
	pushed     State     // the last that the hub delivered
	looked     time.Time // when the last answered read or write of the record began
	stale      bool      // the record may be another one, older than the last known
	failure    error     // why the last write failed, if not because another member wrote

	taker         *waiter   // the waiter for which the lock was last to be taken
	pendingLease  string    // with which lease
	lastWrite     lastWrite // the last write that was acknowledged and did not show the lock as handed to this member
	acceptedGrant string    // the last lease that was accepted without a write: a second one would have its token

	lease   *Lease        // the one in hand
	waiters list.List     // of *waiter: those that wait for their turn
	others  list.List     // of *waiter: those that want it now or not at all, or by force
	rest    time.Time     // when the next write may be sent that is not about a lease in hand
	tries   int           // how often in a row a write was refused
	working bool          // a worker runs
	inLine  bool          // it waits for its turn, for an unknown time
	closing error         // why no waiter gets the lock any more
	closeBy time.Time     // when the worker gives up
	dead    bool          // nothing may be started any more
	ended   chan struct{} // closed when it is dead
	used    time.Time     // when a caller last wanted or had the lock
	timer   *time.Timer   // starts the worker when something is due
	notes   []note        // to be emitted when mu is free
}

// note is an event that waits for mu to be free.
type note struct {
	ctx   context.Context //nolint:containedctx // of the call that it is about
	event Event
}

// lastWrite has the time at which a write was first sent, and the revision at which it was stored.
type lastWrite struct {
	sent time.Time
	at   uint64
}

// observedLease is for how long other members leave alone the lease that a record shows.
type observedLease struct {
	probedAt  time.Time // when this process first saw that the holder was asked for a renewal
	expiresAt time.Time

	probed bool     // the members that come before this one were, after that
	gone   []string // those of them that are gone
}

// The times of an agent, beside the TTLs of leases.
const (
	// grantTTL is for how long a lock is kept for the member that it was handed to.
	grantTTL = time.Second

	// takeOverStep is the delay by which each member of the queue takes a lock of a dead holder later than the one
	// before it, so that only one does. Those that are found to be gone do not count.
	takeOverStep = 100 * time.Millisecond

	// answerTime is the time that a holder gets to renew after it was asked to. No clock shortens it: clocks may have
	// been set.
	answerTime = time.Second

	// acceptFor is the least time for which a lease that is accepted without a confirmation has to hold: a confirmation
	// that takes longer loses it.
	acceptFor = grantTTL / 2

	// confirmAfter is how long after it was accepted a lease is confirmed: a lease that ends sooner needs no write.
	confirmAfter = 10 * time.Millisecond

	// lingering is for how long the record of an unused lock is still followed, so that the next use knows its
	// revision.
	lingering = 5 * time.Second

	// Between two tries of a write that was refused because another member wrote.
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
func (a *agent) spawn(work func()) { a.agents.work.Go(work) }

// onTimer starts the worker.
func (a *agent) onTimer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.start()
}

// Deliver takes a state of the lock from the hub, which is locked.
func (a *agent) Deliver(value any, _ bool) {
	s := value.(*State) //nolint:forcetypeassert // view makes nothing else
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
	if do, _, when := a.decide(now); do != nothing || len(a.notes) > 0 {
		a.start()
	} else {
		a.wakeAt(now, when)
	}
}

// Knows reports whether the hub need not read the record: always, because the agent reads it itself.
func (a *agent) Knows(string) bool { return true }

// Wake does nothing: Agents.Close ends the agent.
func (a *agent) Wake() {}

// run takes one step after the other, until there is nothing to do.
func (a *agent) run() {
	if !a.follow() {
		return
	}
	for !a.rests() {
		a.step()
	}
	a.agents.rest(a)
}

// follow subscribes the agent to its lock, and reports whether that succeeded; if not, it ended the agent.
func (a *agent) follow() bool {
	if a.watching {
		return true
	}
	a.watch = kv.Watch{Keys: []string{a.key}, To: a}
	if err := a.agents.store.Hub.AddNow(&a.watch); err != nil {
		a.abandon(err)
		return false
	}
	a.watching, a.resting = true, true
	return true
}

// rests ends the work if there is nothing to do, and reports whether it did.
func (a *agent) rests() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if resting := a.waiters.Len() == 0; resting != a.resting {
		a.resting = resting
		a.mu.Unlock()
		a.agents.store.Hub.Rest(&a.watch, resting)
		a.mu.Lock()
	}
	now := time.Now()
	do, _, when := a.decide(now)
	if do != nothing || len(a.notes) > 0 || a.resting != (a.waiters.Len() == 0) {
		return false
	}
	a.working = false
	if when.IsZero() && a.isIdle() && !now.Before(a.leaves()) {
		return true // it is retired now: a timer that is due would start workers for as long as others keep it from that
	}
	a.wakeAt(now, when)
	return true
}

// step emits the events and takes the next action.
func (a *agent) step() {
	a.emitNotes()
	a.act()
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

// emitNotes emits the noted events.
func (a *agent) emitNotes() {
	a.mu.Lock()
	notes := a.notes
	a.notes = nil
	a.mu.Unlock()
	for _, n := range notes {
		a.agents.emit(n.ctx, n.event)
	}
}

// wakeAt sets the timer: to the time of the next action, or else to when the agent may be retired.
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

// leaves returns when an unused agent may be retired. It stays while it knows for how long another member's lease is to
// be left alone: otherwise a caller that asks now and then could never take over.
func (a *agent) leaves() time.Time {
	leaves := a.used.Add(lingering)
	if after := a.observed.expiresAt.Add(lingering); after.After(leaves) {
		return after
	}
	return leaves
}

// turn waits until the agent may use the server, and returns the channel to take an element from after that. An agent
// with a lease in hand does not wait behind those that want one.
func (a *agent) turn() chan struct{} {
	a.mu.Lock()
	turns := a.agents.turns
	if a.lease != nil {
		turns = a.agents.holderTurns
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
	if t.revision, err = a.agents.store.SendOnce(ctx, t.change, a.agents.cfg.OpTimeout); err != nil {
		return a.settle(t, err, t.began)
	}
	return nil
}

// settle is the rest of send, after a first write that ended with the error last. Its time counts from since.
func (a *agent) settle(t *transaction, last error, since time.Time) (err error) {
	t.revision, _, err = a.agents.store.Settle(context.Background(), t.change, t.began, since, last) //nolint:forbidigo // bound by the store
	return err
}

// serve runs the agent in the goroutine of a caller that became the worker, which saves waking another goroutine and
// being woken by it. It sends one write at most, and waits for that no longer than ctx and bound allow. The rest is
// left to a goroutine that it spawns.
func (a *agent) serve(ctx context.Context, bound time.Duration) {
	a.agents.work.Add(1)
	defer a.agents.work.Done()
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
	if t.revision, err = a.agents.store.SendOnce(ctx, t.change, bound); err != nil {
		a.spawn(func() {
			a.apply(t, a.settle(t, err, time.Now()))
			<-a.agents.turns
			a.run()
		})
		return
	}
	a.apply(t, nil)
	<-a.agents.turns
	if a.rests() {
		a.agents.rest(a)
	} else {
		a.spawn(a.run)
	}
}

// first returns the write that is to be sent now, nil if there is none or it is not this agent's turn.
func (a *agent) first() *transaction {
	select {
	case a.agents.turns <- struct{}{}:
	default:
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if do, w, _ := a.decide(now); len(a.notes) == 0 && do != nothing && do != look && do != probe {
		if t := a.compose(do, w, now); t.err == nil {
			return t
		}
	}
	<-a.agents.turns
	return nil
}
