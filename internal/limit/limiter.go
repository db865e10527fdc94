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
	starving bool      // a waiting job could start if it had a slot
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
	slot     Slot
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
func (l *limiter) enter(ctx context.Context, w *waiter) (grant, error) {
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return grant{}, errRetired
	}
	if len(l.waiters) == 0 {
		l.began = time.Now()
		l.busy = l.began
	}
	at, _ := slices.BinarySearchFunc(l.waiters, w, func(a, b *waiter) int { return cmp.Compare(a.sequence, b.sequence) })
	l.waiters = slices.Insert(l.waiters, at, w)
	l.start()
	l.mu.Unlock()
	select {
	case got := <-w.out:
		return got, got.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case got := <-w.out:
		return got, got.err
	default:
		l.remove(w)
		l.start()
		return grant{}, ErrClosed
	}
}

// leave takes a permit back.
func (l *limiter) leave(owner string) {
	if l.spec.Concurrency == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if owner == l.owner {
		l.used--
		l.start()
	}
}

// remove takes a waiter out of the line.
func (l *limiter) remove(w *waiter) {
	l.waiters = slices.DeleteFunc(l.waiters, func(o *waiter) bool { return o == w })
	w.done = true
	l.unpark(w)
}

func (l *limiter) unpark(w *waiter) {
	if w.parked {
		w.parked = false
		l.set.parked.Add(-1)
	}
}

// answer ends a wait with a grant or an error.
func (l *limiter) answer(w *waiter, got grant) {
	l.remove(w)
	w.out <- got
}

// start takes the steps that need no request, and runs the rest in a goroutine. The caller holds mu.
func (l *limiter) start() {
	if l.working || l.dead || !l.advance() {
		return
	}
	l.working = l.set.spawn(l.run)
}

// poke is start without mu.
func (l *limiter) poke() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start()
}

// run reads and writes the record until no request is needed.
func (l *limiter) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.set.ctx.Err() == nil && l.advance() {
		if l.look {
			l.read()
		} else {
			l.write()
		}
	}
	l.working = false
}

// advance takes the steps that need no request, and reports whether a request is needed. The caller holds mu.
func (l *limiter) advance() bool {
	now := time.Now()
	l.sync()
	if l.sub == nil && l.held > l.used && len(l.waiters) > 0 && now.Sub(l.looked) > turn {
		l.look = true // back-to-back calls would pass a permit on for ever, and not learn of other waiting workers
	}
	if l.look {
		if len(l.waiters) > 0 || l.used != l.held || l.held != l.rec.of(l.owner) {
			return true
		}
		l.wake(now)
		return false
	}
	p := l.plan(now, l.arrange(now))
	if p.write {
		return true
	}
	l.admit(p)
	l.follow()
	l.wake(now)
	return l.look
}

// sync drops the permits of a lease that has ended: they are void.
func (l *limiter) sync() {
	if owner := l.set.name(); owner != l.owner {
		l.owner, l.used, l.held = owner, 0, 0
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
func (l *limiter) plan(now time.Time, want int) plan {
	p := plan{grants: want, rec: l.rec.clone()}
	gone := p.rec.without(l.set.isGone)
	hold := 0
	if l.spec.Concurrency > 0 {
		p.rec.set(l.owner, l.held, l.set.cfg.Lease)
		hold = max(l.used, min(l.used+want, l.most(p.rec, now)))
		p.grants = hold - l.used
	}
	if l.spec.Rate > 0 {
		p.starts = p.rec.take(l.spec, now, p.grants)
		p.grants = len(p.starts)
		hold = min(hold, l.used+p.grants)
	}
	if l.spec.Concurrency > 0 {
		others := p.rec.total() - p.rec.of(l.owner)
		p.rec.set(l.owner, hold, l.set.cfg.Lease)
		wants := len(l.waiters) > p.grants && !l.starving && others > 0 && l.set.ctx.Err() == nil
		p.write = p.rec.stand(l.owner, wants, hold > l.held)
	}
	stale := hold > 0 && now.Sub(l.wrote) > refreshFor
	p.write = p.write || hold != l.held || hold != l.rec.of(l.owner) || len(p.starts) > 0 || stale || gone && len(l.waiters) > 0
	return p
}

// admit answers as many waiting jobs as the plan grants.
func (l *limiter) admit(p plan) {
	now := time.Now()
	for n := 0; n < p.grants; {
		at := slices.IndexFunc(l.waiters, func(w *waiter) bool { return !w.parked })
		if at < 0 {
			return // all waiters have left meanwhile
		}
		got := grant{owner: l.owner}
		if len(p.starts) > 0 {
			got.start = p.starts[n]
		}
		if l.spec.Concurrency > 0 {
			l.used++
		}
		l.pace(now)
		l.answer(l.waiters[at], got)
		n++
	}
}
