package kvlock

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// gate is one lock as one Locker sees it: what is known of its record, who of this process waits for it, and who holds
// it. All that a process writes about a lock goes through its gate, one write at a time: a lease that is taken, renewed,
// handed on or confirmed, places in the queue that are taken or left, whatever is due is put together into one record.
//
// What is written is computed anew each time, from the record as it is known (decide, compose). So nothing has to be
// remembered of a write whose outcome was not learnt: the record shows it. What keeps two from holding a lock:
//
//  1. A record replaces only the one that it was computed from. Every write is conditional on that one's revision, and
//     only an acknowledgement makes a lease of it: never a read, never a push, never a refusal. But for rule 4.
//  2. A lease begins, and begins anew, when a write that says so was sent first, and ends its ttl less a margin later on
//     the holder's monotonic clock (deadline). That it was sent again, because nobody knew what came of it, counts for
//     nothing: others may have seen the first. Whatever the holder waits for, a timer of its own ends the context.
//  3. Who did not write it leaves a lease alone until its whole ttl has passed since he first saw it so (life): the
//     holder sent it before that. Only a renewal by the holder makes a life longer; a write about the queue does not.
//     That holds for a record that is gone, too: releasing leaves a marker, and the server's TTL is twice the lease's.
//  4. What was handed over belongs to the member it was handed to for grantTTL: others leave it alone for that long from
//     when they first saw it (rule 3), so at least from when it was stored. When that was, the member cannot know: what
//     tells of it may have been under way for long. But of a write of its own that was acknowledged, and that showed the
//     lock as not yet handed to it, it knows when it was sent; and what has a greater revision was stored after that. So
//     a lease that begins with that write, for grantTTL, ends in time (accept). Where too little is left of it, as after
//     a long wait, the member has the lock when it has confirmed it by a write of its own. Where it has the lock at once
//     it confirms it soon after, and loses it when that does not come through.
//  5. A lease's context ends before the write is sent that gives the lock away.
//  6. What a record shows as held by this member, and is in nobody's hand, is taken for who waits, or given back.
//
// And what keeps anybody from waiting in vain: each gate with something to wait for has a timer for the next thing it
// may have to do; the board reads its key every second or two, or knows that no push is missing; and a place in the
// queue is not something that is remembered but something that the record shows, so that one that is not there is taken
// again.
type gate struct {
	locker *Locker
	name   string

	watcher *Watcher      // of the worker, then of who retires the gate
	resting bool          // of the worker: the watcher rests
	idle    *list.Element // guarded by Locker.mu

	mu      sync.Mutex // taken after Locker.mu and the board's; nothing is sent or asked with it held
	at      uint64     // the revision of what is known; before anything was learnt, what it may be
	created time.Time  // when the server stored it; zero when that was not told
	rec     *lockRecord
	life    life
	kept    time.Time // until when revision at, which was acknowledged to us, is there for sure
	pushed  Slot      // the last that the board told
	looked  time.Time // when the last look at the record, or write over it, began that was answered
	doubt   bool      // the record may be another one, older than what is known
	failure error     // why the last write did not come about, if it was not for another one's
	taker   *waiter   // for whom the lock was to be taken last
	taking  string    // with which lease
	wrote   wrote     // the last write that was acknowledged and did not show the lock as handed to this member
	handed  string    // the last lease that was accepted without a write: a second one would have its token

	lease   *Lease        // the one in hand
	waiters list.List     // of *waiter: who waits for its turn
	others  list.List     // of *waiter: who wants it now or not at all, or by force
	rest    time.Time     // when the next write may be sent that is not about a lease in hand
	tries   int           // how often in a row a write was refused
	working bool          // a worker runs
	inLine  bool          // it waits for its turn, and nobody knows how long
	closing error         // why nobody gets the lock any more
	closeBy time.Time     // when the worker gives up
	dead    bool          // nothing may be started any more
	ended   chan struct{} // closed when it is dead
	used    time.Time     // when somebody last wanted or had the lock
	timer   *time.Timer   // starts the worker when something is due
	notes   []note        // to be emitted when mu is free
}

// note is an event that waits for mu to be free.
type note struct {
	ctx   context.Context //nolint:containedctx // of the call that it is about
	event Event
}

// wrote is when a write was sent first, and at which revision it was stored.
type wrote struct {
	sent time.Time
	at   uint64
}

// life is for how long what a record shows as the holder is left alone by others.
type life struct {
	asked time.Time // when this process first saw that the holder was asked whether it lives
	born  time.Time // when this process first saw it
	over  time.Time
}

// What a gate waits for, beside the TTLs of leases.
const (
	// grantTTL is for how long a lock is kept for whom it was handed to.
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

	// Between two tries of a write that was refused because somebody else wrote.
	minContention = 250 * time.Microsecond
	maxContention = 4 * time.Millisecond
)

// start makes sure that a worker runs. It is called with mu held.
func (g *gate) start() {
	if g.begin() {
		g.hire(g.run)
	}
}

// begin says whether the caller is to be the worker: nobody else is. It is called with mu held.
func (g *gate) begin() bool {
	if g.working || g.dead {
		return false
	}
	g.working = true
	return true
}

// hire has a goroutine of its own work.
func (g *gate) hire(work func()) { g.locker.work.Go(work) }

// due is called by the timer.
func (g *gate) due() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.start()
}

// heard takes what the board tells. The board is locked.
func (g *gate) heard(slot Slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slot.follows(g.pushed) {
		g.pushed = slot
	}
	g.learn(slot, false)
	if g.working || g.dead {
		return
	}
	if g.closing != nil {
		g.start()
		return
	}
	now := time.Now()
	if do, _, when := g.decide(now); do != nothing || len(g.notes) > 0 {
		g.start()
	} else {
		g.wakeAt(now, when)
	}
}

// lastPushed is for change.pushed.
func (g *gate) lastPushed() Slot {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pushed
}

// run does what is to be done, until there is nothing.
func (g *gate) run() {
	if !g.follow() {
		return
	}
	for !g.rests() {
		g.step()
	}
	g.locker.rest(g)
}

// follow has the gate told how its lock changes.
func (g *gate) follow() bool {
	if g.watcher != nil {
		return true
	}
	w, err := g.locker.listen(g.name, g.heard)
	if err != nil {
		g.abandon(err)
		return false
	}
	g.watcher, g.resting = w, true
	return true
}

// rests ends the work if nothing is to be done.
func (g *gate) rests() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if resting := g.waiters.Len() == 0; resting != g.resting {
		g.resting = resting
		g.mu.Unlock()
		g.watcher.rest(resting)
		g.mu.Lock()
	}
	now := time.Now()
	do, _, when := g.decide(now)
	if do != nothing || len(g.notes) > 0 || g.resting != (g.waiters.Len() == 0) {
		return false
	}
	g.working = false
	g.wakeAt(now, when)
	return true
}

// step does what is to be done next.
func (g *gate) step() {
	g.tellAll()
	g.act()
}

// act asks the server for something, when it is this gate's turn: what is to be done is only decided then.
func (g *gate) act() {
	turns := g.turn()
	defer func() { <-turns }()
	g.mu.Lock()
	g.inLine = false
	now := time.Now()
	switch do, w, _ := g.decide(now); do {
	case nothing:
		g.mu.Unlock()
	case look:
		at := g.at
		g.mu.Unlock()
		g.lookAt(at)
	case take, renew, pass, queueUp, touch:
		t := g.compose(do, w, now)
		g.mu.Unlock()
		g.settle(t, g.send(t))
	}
}

// tellAll emits what was noted.
func (g *gate) tellAll() {
	g.mu.Lock()
	notes := g.notes
	g.notes = nil
	g.mu.Unlock()
	for _, n := range notes {
		g.locker.emit(n.ctx, n.event)
	}
}

// wakeAt sets the timer: to when something is due, and when nothing is, to when the gate may go.
func (g *gate) wakeAt(now, when time.Time) {
	if when.IsZero() {
		when = g.leaves()
	}
	if g.timer == nil {
		g.timer = time.AfterFunc(when.Sub(now), g.due)
		return
	}
	g.timer.Reset(when.Sub(now))
}

// leaves is when a gate may go that nobody uses. It stays while it knows for how long somebody else's lease is to be
// left alone: one who asks now and then could not take over otherwise.
func (g *gate) leaves() time.Time {
	leaves := g.used.Add(lingering)
	if after := g.life.over.Add(lingering); after.After(leaves) {
		return after
	}
	return leaves
}
