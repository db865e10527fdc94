package lock

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// agent is one lock as one member sees it: what is known of its record, the waiters of this process, and the lease in
// hand. All that a process writes about a lock goes through its agent, one write at a time: a lease that is taken, renewed,
// handed on or confirmed, places in the queue that are taken or left, whatever is due is put together into one record.
//
// What is written is computed anew each time, from the record as it is known (decide, compose). So nothing has to be
// remembered of a write whose outcome was not learnt: the record shows it. What keeps two from holding a lock:
//
//  1. A record replaces only the one that it was computed from. Every write is conditional on that one's revision, and
//     only an acknowledgement makes a lease of it: never a read, never a push, never a refusal. But for rule 4.
//  2. A lease begins, and begins anew, when a write that says so was sent first, and ends its ttl less a margin later on
//     the holder's monotonic clock (kv.Deadline). That it was sent again, because nobody knew what came of it, counts for
//     nothing: others may have seen the first. Whatever the holder waits for, a timer of its own ends the context.
//  3. Other members leave a lease alone until its whole ttl has passed since they first saw it (observedLease): the holder
//     sent it before that. Only a renewal by the holder makes that longer; a write about the queue does not. It holds for a
//     record that is gone, too: releasing leaves a marker, and the server's TTL is twice the lease's.
//  4. A lock that was handed over belongs to its new member for grantTTL: others leave it alone for that long from when
//     they first saw it (rule 3), so at least from when it was stored. When that was, the member cannot know: the push that
//     tells of it may have been under way for long. But of a write of its own that was acknowledged, and that showed the
//     lock as not yet handed to it, it knows when it was sent; and what has a greater revision was stored after that. So
//     a lease that begins with that write, for grantTTL, ends in time (accept). Where too little is left of it, as after
//     a long wait, the member has the lock when it has confirmed it by a write of its own. Where it has the lock at once
//     it confirms it soon after, and loses it when that does not come through.
//  5. A lease's context ends before the write is sent that gives the lock away.
//  6. A lock that the record shows as held by this member, and that is in no hand, is taken for a waiter, or given back.
//
// And what keeps a caller from waiting in vain: each agent with something to wait for has a timer for the next thing it
// may have to do; the hub reads its key every second or two, or knows that no push is missing; and a place in the
// queue is not something that is remembered but something that the record shows, so that one that is not there is taken
// again.
type agent struct {
	agents *Agents
	name   string

	watch    kv.Watch      // of the worker, then of the goroutine that retires the agent
	watching bool          // as the next
	resting  bool          // as the hub knows it
	idle     *list.Element // guarded by Agents.mu

	mu       sync.Mutex // taken after Agents.mu and the hub's; nothing is sent or asked with it held
	at       uint64     // the revision of what is known; before anything was learnt, what it may be
	created  time.Time  // when the server stored it; zero when that was not told
	rec      *Record
	observed observedLease
	held     time.Time // until when revision at, which was acknowledged to us, is there for sure
	pushed   State     // the last that the hub delivered
	looked   time.Time // when the last look at the record, or write over it, began that was answered
	stale    bool      // the record may be another one, older than what is known
	failure  error     // why the last write did not come about, if it was not for another one's

	taker         *waiter   // for whom the lock was to be taken last
	pendingLease  string    // with which lease
	lastWrite     lastWrite // the last write that was acknowledged and did not show the lock as handed to this member
	acceptedGrant string    // the last lease that was accepted without a write: a second one would have its token

	lease   *Lease        // the one in hand
	waiters list.List     // of *waiter: those that wait for their turn
	others  list.List     // of *waiter: those that want it now or not at all, or by force
	rest    time.Time     // when the next write may be sent that is not about a lease in hand
	tries   int           // how often in a row a write was refused
	working bool          // a worker runs
	inLine  bool          // it waits for its turn, and nobody knows how long
	closing error         // why nobody gets the lock any more
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

// lastWrite is when a write was sent first, and at which revision it was stored.
type lastWrite struct {
	sent time.Time
	at   uint64
}

// observedLease is for how long other members leave alone the lease that a record shows.
type observedLease struct {
	probedAt  time.Time // when this process first saw that the holder was asked whether it lives
	firstSeen time.Time // when this process first saw the lease
	expiresAt time.Time
}

// What an agent waits for, beside the TTLs of leases.
const (
	// grantTTL is for how long a lock is kept for the member that it was handed to.
	grantTTL = time.Second

	// takeOverStep is by how much later each in the queue takes a lock that nobody holds any more, so that one does.
	takeOverStep = 100 * time.Millisecond

	// answerTime is for how long a holder that was asked whether it lives is waited for, whatever clocks say: they may
	// have been set.
	answerTime = time.Second

	// acceptFor is for how long a lease has to hold at least that is not confirmed yet: a confirmation that takes longer
	// loses it.
	acceptFor = grantTTL / 2

	// confirmAfter is when a lease is confirmed that was accepted: those that end sooner are spared the write.
	confirmAfter = 10 * time.Millisecond

	// lingering is for how long the record of a lock that is not used any more is still followed, so that the next use
	// knows its revision.
	lingering = 5 * time.Second

	// Between two tries of a write that was refused because another member wrote.
	minContention = 250 * time.Microsecond
	maxContention = 4 * time.Millisecond
)

// start makes sure that a worker runs. It is called with mu held.
func (a *agent) start() {
	if a.begin() {
		a.spawn(a.run)
	}
}

// begin reports whether the caller is to be the worker: nobody else is. It is called with mu held.
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

// Knows reports whether the agent has no need of a read: it looks for itself.
func (a *agent) Knows(string) bool { return true }

// Wake does nothing: Agents.Close ends the agent.
func (a *agent) Wake() {}

// run does what is to be done, until there is nothing.
func (a *agent) run() {
	if !a.follow() {
		return
	}
	for !a.rests() {
		a.step()
	}
	a.agents.rest(a)
}

// follow has the agent told how its lock changes.
func (a *agent) follow() bool {
	if a.watching {
		return true
	}
	a.watch = kv.Watch{Keys: []string{a.name}, To: a}
	if err := a.agents.store.Hub.AddNow(&a.watch); err != nil {
		a.abandon(err)
		return false
	}
	a.watching, a.resting = true, true
	return true
}

// rests ends the work if nothing is to be done.
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
	a.wakeAt(now, when)
	return true
}

// step does what is to be done next.
func (a *agent) step() {
	a.emitNotes()
	a.act()
}

// act asks the server for something, when it is this agent's turn: what is to be done is only decided then.
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
	case take, renew, pass, queueUp, touch:
		t := a.compose(do, w, now)
		a.mu.Unlock()
		a.apply(t, a.send(t))
	}
}

// emitNotes emits what was noted.
func (a *agent) emitNotes() {
	a.mu.Lock()
	notes := a.notes
	a.notes = nil
	a.mu.Unlock()
	for _, n := range notes {
		a.agents.emit(n.ctx, n.event)
	}
}

// wakeAt sets the timer: to when something is due, and when nothing is, to when the agent may go.
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

// leaves returns when an agent may go that nobody uses. It stays while it knows for how long another member's lease is to
// be left alone: a caller that asks now and then could not take over otherwise.
func (a *agent) leaves() time.Time {
	leaves := a.used.Add(lingering)
	if after := a.observed.expiresAt.Add(lingering); after.After(leaves) {
		return after
	}
	return leaves
}

// turn waits until the server may be asked, and returns what to take an element from after that. With a lease in hand
// there is no time to wait behind all that want one.
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

// settle is the rest of send, after a try that ended with the error last. Its time counts from since.
func (a *agent) settle(t *transaction, last error, since time.Time) (err error) {
	t.revision, _, err = a.agents.store.Settle(context.Background(), t.change, t.began, since, last) //nolint:forbidigo // bound by the store
	return err
}

// serve is run by a caller that has begun to work: for what it wants itself, there is no goroutine to be woken, nor to
// be woken by. It sends one write at most, and waits for that no longer than ctx and bound let it. All else is left to a
// goroutine that is spawned for it.
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

// first returns the write that is to be sent now, if one is and may be: it is this agent's turn then.
func (a *agent) first() *transaction {
	select {
	case a.agents.turns <- struct{}{}:
	default:
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if do, w, _ := a.decide(now); len(a.notes) == 0 && do != nothing && do != look {
		if t := a.compose(do, w, now); t.err == nil {
			return t
		}
	}
	<-a.agents.turns
	return nil
}

// lookAt reads the record, of which revision at is known, from the stream's leader.
func (a *agent) lookAt(at uint64) {
	began := time.Now()
	s, err := a.agents.ask(context.Background(), a.name) //nolint:forbidigo // bound by the store
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed(err)
		return
	}
	a.looked = began
	a.found(s, at)
}
