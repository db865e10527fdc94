package limit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

const (
	// emptyFor is how long a record is kept that says nothing any more, and a gate without
	// work.
	emptyFor = 2 * time.Minute

	// heldFor is how long a record is kept that says something, and refreshFor when it is
	// written again.
	heldFor    = 24 * time.Hour
	refreshFor = heldFor / 3

	// grace is how long a permit is left to those who are first in line.
	grace = 100 * time.Millisecond

	// turn is for how long permits go from job to job here while others stand in line.
	turn = 10 * time.Millisecond

	// recheck is how often what is waited for is looked at, should no push come. Half of it
	// to all of it.
	recheck = 2 * time.Second

	// Between two tries of a write.
	minPause = 250 * time.Microsecond
	maxPause = 250 * time.Millisecond
)

var (
	errRefused = errors.New("limit: no permit") // to who does not wait
	errRetired = errors.New("limit: the gate was let go of")
)

// gate is one key of a limit, as one worker sees it.
type gate struct {
	name    string
	set     *Set
	spec    Spec
	subject string

	mu       sync.Mutex
	at       kvrecord.Record // that rec is of
	away     time.Time       // when the last of those that were sent away will be back
	began    time.Time       // when the last job started
	busy     time.Time       // since when somebody has been waiting
	dead     bool            // let go of
	every    time.Duration   // between two starts, of late
	failed   int             // tries in a row
	held     int             // permits of owner in a record that was acknowledged
	look     bool            // the record has to be read
	looked   time.Time       // when rec was last read or written
	owner    string          // for whom held and used are counted
	pushed   int64           // the revision that somebody is about to replace, -1 for none
	rec      record
	seen     time.Time // when rec was first known
	starving bool      // could go on if there was a seat
	sub      *nats.Subscription
	timer    *time.Timer
	turn     time.Time // when permits are to be left to others, zero when nobody wants any
	used     int       // permits in use
	waiters  []*waiter // the first in line first
	working  bool
	wrote    time.Time // when rec was last written from here
}

// waiter is a job in line.
type waiter struct {
	done     bool
	out      chan grant
	parked   bool
	seat     Seat
	sequence uint64
	try      bool // does not wait
}

// grant is what a waiter gets.
type grant struct {
	err   error
	owner string
	start time.Time // not before, zero for now
}

// enter waits for a permit.
func (g *gate) enter(ctx context.Context, w *waiter) (grant, error) {
	g.mu.Lock()

	if g.dead {
		g.mu.Unlock()

		return grant{}, errRetired
	}

	if len(g.waiters) == 0 {
		g.began = time.Now()
		g.busy = g.began
	}

	at, _ := slices.BinarySearchFunc(g.waiters, w, func(a, b *waiter) int { return cmp.Compare(a.sequence, b.sequence) })
	g.waiters = slices.Insert(g.waiters, at, w)
	g.start()
	g.mu.Unlock()

	select {
	case got := <-w.out:
		return got, got.err
	case <-ctx.Done():
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	select {
	case got := <-w.out:
		return got, got.err
	default:
		g.remove(w)
		g.start()

		return grant{}, ErrClosed
	}
}

// leave takes a permit back.
func (g *gate) leave(owner string) {
	if g.spec.Concurrency == 0 {
		return
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	if owner == g.owner {
		g.used--
		g.start()
	}
}

// remove takes a waiter out of line.
func (g *gate) remove(w *waiter) {
	g.waiters = slices.DeleteFunc(g.waiters, func(o *waiter) bool { return o == w })
	w.done = true
	g.unpark(w)
}

func (g *gate) unpark(w *waiter) {
	if w.parked {
		w.parked = false
		g.set.parked.Add(-1)
	}
}

// answer ends a wait.
func (g *gate) answer(w *waiter, got grant) {
	g.remove(w)

	w.out <- got
}

// start does what is to be done, or has it done. It is called with mu held.
func (g *gate) start() {
	if g.working || g.dead || !g.pass() {
		return
	}

	g.working = g.set.hire(g.run)
}

// poke is start without mu.
func (g *gate) poke() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.start()
}

// run writes, or reads, until there is nothing to be done.
func (g *gate) run() {
	g.mu.Lock()
	defer g.mu.Unlock()

	for g.set.ctx.Err() == nil && g.pass() {
		if g.look {
			g.read()
		} else {
			g.write()
		}
	}

	g.working = false
}

// pass does what can be done without asking the server, and reports whether it has to be
// asked. It is called with mu held.
func (g *gate) pass() bool {
	now := time.Now()

	g.sync()

	if g.look {
		if len(g.waiters) > 0 || g.used != g.held || g.held != g.rec.of(g.owner) {
			return true
		}

		g.wake(now)

		return false
	}

	p := g.plan(now, g.arrange(now))
	if p.write {
		return true
	}

	g.admit(p)
	g.follow()
	g.wake(now)

	return g.look
}

// sync takes notice of the end of a lease: what was held under its name is void.
func (g *gate) sync() {
	if owner := g.set.name(); owner != g.owner {
		g.owner, g.used, g.held = owner, 0, 0
	}
}

// plan is what the record should be.
type plan struct {
	grants int
	rec    record
	starts []time.Time
	write  bool
}

// plan computes it.
func (g *gate) plan(now time.Time, want int) plan {
	p := plan{grants: want, rec: g.rec.clone()}
	gone := p.rec.without(g.set.isGone)

	hold := 0
	if g.spec.Concurrency > 0 {
		p.rec.set(g.owner, g.held, g.set.cfg.Lease)
		hold = max(g.used, min(g.used+want, p.rec.most(g.spec.Concurrency, g.owner, g.owes(now))))
		p.grants = hold - g.used
	}

	if g.spec.Rate > 0 {
		p.starts = p.rec.take(g.spec, now, p.grants)
		p.grants = len(p.starts)
		hold = min(hold, g.used+p.grants)
	}

	if g.spec.Concurrency > 0 {
		others := p.rec.total() - p.rec.of(g.owner)
		p.rec.set(g.owner, hold, g.set.cfg.Lease)

		wants := len(g.waiters) > p.grants && !g.starving && others > 0 && g.set.ctx.Err() == nil
		p.write = p.rec.stand(g.owner, wants, hold > g.held)
	}

	stale := hold > 0 && now.Sub(g.wrote) > refreshFor
	p.write = p.write || hold != g.held || hold != g.rec.of(g.owner) || len(p.starts) > 0 || stale || gone && len(g.waiters) > 0

	return p
}

// admit lets in whom the plan says.
func (g *gate) admit(p plan) {
	now := time.Now()

	for n := 0; n < p.grants; {
		at := slices.IndexFunc(g.waiters, func(w *waiter) bool { return !w.parked })
		if at < 0 {
			return // gone meanwhile
		}

		got := grant{owner: g.owner}
		if len(p.starts) > 0 {
			got.start = p.starts[n]
		}

		if g.spec.Concurrency > 0 {
			g.used++
		}

		g.pace(now)
		g.answer(g.waiters[at], got)

		n++
	}
}
