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
	// emptyFor is the time for which a record without holders and queue is kept, and a limiter without work.
	emptyFor = 2 * time.Minute

	// heldFor is the time for which a record with holders or a queue is kept, and refreshFor the age at which its holder writes it again.
	heldFor    = 24 * time.Hour
	refreshFor = heldFor / 3

	// grace is the time for which a free permit is left to the workers that are first in line.
	grace = 100 * time.Millisecond

	// turn is the time for which a worker passes permits from job to job while other workers stand in line.
	turn = 10 * time.Millisecond

	// recheck is the longest time after which a waiting limiter reads its record when no push has come, and half of it the shortest.
	recheck = 2 * time.Second

	// Bounds of the wait between two tries of a write.
	minPause = 250 * time.Microsecond
	maxPause = 250 * time.Millisecond
)

var (
	errRefused = errors.New("limit: no permit") // the answer to a job that does not wait
	errRetired = errors.New("limit: the limiter was removed")
)

// limiter grants the permits of one key to the jobs of this worker.
type limiter struct {
	name    string
	set     *Set
	spec    Spec
	subject string

	mu       sync.Mutex
	at       kvrecord.Record // the record from which rec was decoded
	away     time.Time       // the time at which the last of the jobs that were sent away will be back
	began    time.Time       // when the last job started
	busy     time.Time       // the time since which a job has been waiting
	dead     bool            // removed from the set
	every    time.Duration   // the recent time between two starts
	failed   int             // tries in a row
	held     int             // permits of owner in an acknowledged record
	look     bool            // the record has to be read
	looked   time.Time       // the time at which rec was last read or written
	missed   bool            // another worker has written the record since it was read
	owner    string          // the name of the lease whose permits held and used count
	pushed   int64           // the revision that another worker is about to replace, -1 for none
	rec      record
	seen     time.Time // when rec was first known
	starving bool      // a waiting job could start if it had a seat
	sub      *nats.Subscription
	timer    *time.Timer
	turn     time.Time // the time at which permits are to be left to other workers, zero when none wants any
	used     int       // permits in use
	waiters  []*waiter // the first in line first
	working  bool
	wrote    time.Time // the time at which this worker last wrote rec
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

// grant is the answer to a waiter.
type grant struct {
	err   error
	owner string
	start time.Time // not before, zero for now
}

// enter waits for a permit.
func (g *limiter) enter(ctx context.Context, w *waiter) (grant, error) {
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
func (g *limiter) leave(owner string) {
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

// remove takes a waiter out of the line.
func (g *limiter) remove(w *waiter) {
	g.waiters = slices.DeleteFunc(g.waiters, func(o *waiter) bool { return o == w })
	w.done = true
	g.unpark(w)
}

func (g *limiter) unpark(w *waiter) {
	if w.parked {
		w.parked = false
		g.set.parked.Add(-1)
	}
}

// answer ends a wait with a grant or an error.
func (g *limiter) answer(w *waiter, got grant) {
	g.remove(w)
	w.out <- got
}

// start takes the steps that need no request, and runs the rest in a goroutine. The caller holds mu.
func (g *limiter) start() {
	if g.working || g.dead || !g.pass() {
		return
	}
	g.working = g.set.spawn(g.run)
}

// poke is start without mu.
func (g *limiter) poke() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.start()
}

// run reads and writes the record until no request is needed.
func (g *limiter) run() {
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

// pass takes the steps that need no request, and reports whether a request is needed. The caller holds mu.
func (g *limiter) pass() bool {
	now := time.Now()
	g.sync()
	if g.sub == nil && g.held > g.used && len(g.waiters) > 0 && now.Sub(g.looked) > turn {
		g.look = true // back-to-back calls would pass a permit on for ever, and not learn of other waiting workers
	}
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

// sync drops the permits of a lease that has ended: they are void.
func (g *limiter) sync() {
	if owner := g.set.name(); owner != g.owner {
		g.owner, g.used, g.held = owner, 0, 0
	}
}

// plan is the record to be written, and the grants that its acknowledgement allows.
type plan struct {
	grants int
	rec    record
	starts []time.Time
	write  bool
}

// plan computes the record with which want jobs can start, or as many as the limit allows.
func (g *limiter) plan(now time.Time, want int) plan {
	p := plan{grants: want, rec: g.rec.clone()}
	gone := p.rec.without(g.set.isGone)
	hold := 0
	if g.spec.Concurrency > 0 {
		p.rec.set(g.owner, g.held, g.set.cfg.Lease)
		hold = max(g.used, min(g.used+want, g.most(p.rec, now)))
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

// admit answers as many waiting jobs as the plan grants.
func (g *limiter) admit(p plan) {
	now := time.Now()
	for n := 0; n < p.grants; {
		at := slices.IndexFunc(g.waiters, func(w *waiter) bool { return !w.parked })
		if at < 0 {
			return // all waiters have left meanwhile
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
