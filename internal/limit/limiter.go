package limit

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/retry"
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
	// Set at the start.
	set     *Set
	spec    Spec
	name    string
	subject string

	mu sync.Mutex // guards the fields below; read, write and pause release it during requests and waits

	// The record, as last read or written.
	at     kvrecord.Record // the record from which rec was decoded
	rec    record
	looked time.Time // when it was last read or written
	seen   time.Time // when rec was first known
	wrote  time.Time // when this worker last wrote rec
	look   bool      // it has to be read
	pushed int64     // the revision that another worker is about to replace, -1 for none
	missed bool      // another worker has written it since it was read
	failed int       // tries in a row
	sub    *nats.Subscription

	// Permits.
	owner string    // the name of the lease whose permits held and used count
	held  int       // permits of owner in an acknowledged record
	used  int       // permits in use
	turn  time.Time // when permits are to be left to other workers, zero when none wants any

	// Jobs.
	waiters  []*waiter     // the first in line first
	starving bool          // a waiting job could start if it had a slot
	busy     time.Time     // since when a job has been waiting
	began    time.Time     // when the last job started
	every    time.Duration // the recent time between two starts
	away     time.Time     // when the last of the jobs that were sent away will be back

	// The goroutine in run.
	working bool
	dead    bool // the limiter was removed from the set
	timer   *time.Timer
}

// waiter is a job in line.
type waiter struct {
	// Set at the start.
	out      chan grant
	slot     Slot
	sequence uint64
	try      bool // does not wait

	// Guarded by the limiter's mu.
	done   bool // it was answered, or its caller has left
	parked bool // it waits without a slot
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
	hold := 0 // permits in the record from now on
	if l.spec.Concurrency > 0 {
		// Permits in use cannot be given back, whatever others are owed.
		p.rec.set(l.owner, l.held, l.set.cfg.Lease)
		hold = max(l.used, min(l.used+want, l.most(p.rec, now)))
		p.grants = hold - l.used
	}
	if l.spec.Rate > 0 {
		// A permit without a start would be held for nothing.
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
	stale := hold > 0 && now.Sub(l.wrote) > refreshFor // the server would remove the record, and with it the permits
	p.write = p.write || hold != l.held || hold != l.rec.of(l.owner) || len(p.starts) > 0 || stale || gone && len(l.waiters) > 0
	return p
}

// admit answers as many waiting jobs as the plan grants.
func (l *limiter) admit(p plan) {
	now := time.Now()
	for n := 0; n < p.grants; {
		at := slices.IndexFunc(l.waiters, func(w *waiter) bool { return !w.parked })
		if at < 0 {
			return // all waiters have left
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

// read reads the record. The caller holds mu, which read releases while it waits.
func (l *limiter) read() {
	pushed := l.pushed
	l.mu.Unlock()
	found, err := l.set.get(l.subject)
	l.mu.Lock()
	if err != nil {
		l.fail(err)
		return
	}
	// The write that another worker announced may not be stored yet.
	const enough = 8 // the last one waits for 64 ms
	if pushed >= 0 && found.Revision <= uint64(pushed) && l.failed < enough {
		l.failed++
		l.pause()
		return
	}
	l.look, l.missed = l.pushed > pushed, false
	if !l.look {
		l.pushed = -1
	}
	l.learn(found)
}

// learn applies a record that was read. The record is a hint: the next write decides.
func (l *limiter) learn(found kvrecord.Record) {
	now := time.Now()
	rec, err := decode(found.Data)
	if err != nil {
		err = &RecordError{Cause: err, Subject: l.subject}
		for len(l.waiters) > 0 {
			l.answer(l.waiters[0], grant{err: err})
		}
		l.look, l.looked = false, now
		l.fail(err)
		return
	}
	l.failed = 0
	if found.Revision != l.at.Revision || l.looked.IsZero() {
		l.seen = now
	}
	l.at, l.looked, l.rec = found, now, rec
	l.held = min(l.held, max(rec.of(l.owner), l.used)) // never count as spare a permit that another worker may have
	l.notice(now)
}

// notice begins a turn when other workers stand in line.
func (l *limiter) notice(now time.Time) {
	switch others := l.rec.owed(max(l.spec.Concurrency, 1), l.owner) > 0; {
	case !others || l.held == 0:
		l.turn = time.Time{}
	case l.turn.IsZero():
		l.turn = now.Add(turn)
	}
}

// write stores the planned record. The caller holds mu, which write releases while it waits.
func (l *limiter) write() {
	if l.spec.Concurrency > 0 {
		l.mu.Unlock()
		live := l.set.ensure()
		l.mu.Lock()
		if !live {
			l.fail(ErrLost)
			return
		}
	}
	l.sync()
	now := time.Now()
	p := l.plan(now, l.arrange(now))
	if !p.write {
		return
	}
	owner, over := l.owner, l.at
	l.held = min(l.held, p.rec.of(owner)) // a permit that the write gives back is gone, whatever the outcome of the write
	l.mu.Unlock()
	stored, err := l.set.put(l.subject, p.rec, over, p.rec.kept(now))
	l.mu.Lock()
	switch {
	case err == nil:
		l.stored(p, owner, stored)
	case errors.Is(err, kvrecord.ErrConflict):
		l.look = true
		l.failed++
		l.pause()
	default:
		// A refusal proves no more than silence: the record is read, and written again.
		l.look = true
		l.fail(err)
	}
}

// stored applies an acknowledged write.
func (l *limiter) stored(p plan, owner string, at kvrecord.Record) {
	now := time.Now()
	gave := p.rec.of(owner) < l.rec.of(owner)
	l.at, l.failed, l.looked, l.rec, l.seen, l.wrote = at, 0, now, p.rec, now, now
	if l.pushed >= 0 && uint64(l.pushed) < at.Revision {
		l.pushed, l.look = -1, false // the announced write was refused, or is this one
	}
	if l.spec.Concurrency > 0 {
		if owner != l.owner || !l.set.isLive(owner) {
			return // the lease has ended
		}
		l.held = p.rec.of(owner)
	}
	if gave {
		l.turn = time.Time{}
	}
	l.notice(now)
	l.admit(p)
}

// fail reports an error and waits before the next try.
func (l *limiter) fail(err error) {
	l.failed++
	l.set.report(err)
	l.pause()
}

// pause waits between two tries. The caller holds mu, which pause releases while it waits.
func (l *limiter) pause() {
	n := l.failed
	l.mu.Unlock()
	retry.Backoff(l.set.ctx, n, minPause, maxPause)
	l.mu.Lock()
}

// follow subscribes to the writes of other workers while a job waits here.
func (l *limiter) follow() {
	waits := len(l.waiters) > 0
	switch {
	case waits && l.sub == nil && l.spec.Concurrency > 0:
		// Workers publish their writes to this subject, so a subscriber receives each write when the stream does. Whether
		// the stream stored it is read afterwards.
		sub, err := l.set.cfg.Conn.Subscribe(l.subject, l.onPush)
		if err == nil {
			l.sub = sub
			l.look = true // a write may have been missed
		}
	case !waits && l.sub != nil && l.held == 0:
		_ = l.sub.Unsubscribe() // the connection is closed, and with it the subscription
		l.sub = nil
	}
}

// onPush is called when a worker writes the record.
func (l *limiter) onPush(msg *nats.Msg) {
	const bits = 63
	replaced, err := strconv.ParseUint(msg.Header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, bits)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || replaced < l.at.Revision {
		return // the server will refuse it, or it is the write that stored l.at
	}
	l.pushed = max(l.pushed, int64(replaced))
	if rec, err := decode(msg.Data); err == nil && l.ignores(rec) {
		l.missed, l.seen = true, time.Now()
		l.wake(l.seen)
		return
	}
	l.look = true
	l.start()
}

// ignores reports whether a pushed record needs no action here, because this worker stands in line behind others that may take the free
// permits. The record is then read only when no other record has followed for grace. If all waiting workers read each write, a write would
// cost as many reads as there are workers.
func (l *limiter) ignores(rec record) bool {
	return l.held == 0 && slices.Contains(rec.Queue, l.owner) && rec.most(l.spec.Concurrency, l.owner, true) == 0
}

// wake sets the timer to the time of the limiter's next look.
func (l *limiter) wake(now time.Time) {
	var at time.Time
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if len(l.waiters) > 0 {
		if l.starving {
			sooner(now.Add(grace)) // a slot may have become free before starve recorded the wait
		}
		if l.spec.Concurrency > 0 {
			sooner(now.Add(recheck/2 + rand.N(recheck/2)))
			l.watch()
			for _, t := range []time.Time{l.seen.Add(grace), l.turn} {
				if t.After(now) {
					sooner(t)
				}
			}
		}
		if l.spec.Rate > 0 {
			if next := l.rec.next(l.spec, now).Add(-horizon); next.After(now) {
				sooner(next)
			}
		}
	}
	if l.held > 0 {
		sooner(l.wrote.Add(refreshFor + time.Second))
	}
	if at.IsZero() {
		if l.timer != nil {
			l.timer.Stop()
		}
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(at.Sub(now), l.due)
	} else {
		l.timer.Reset(at.Sub(now))
	}
}

// due is called when the timer ends.
func (l *limiter) due() {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A push may have been lost, or the first in line has not taken the free permits.
	overdue := time.Since(l.looked) >= recheck/2 || l.missed && time.Since(l.seen) >= grace
	if overdue && len(l.waiters) > 0 && l.spec.Concurrency > 0 {
		l.look = true
	}
	l.start()
}

// watch makes the set check the workers that have or want permits of this key.
func (l *limiter) watch() {
	for _, h := range l.rec.Holders {
		if h.ID != l.owner {
			l.set.watch(h.ID, h.TTL)
		}
	}
	for _, id := range l.rec.Queue {
		if id != l.owner && l.rec.of(id) == 0 {
			l.set.watch(id, l.set.cfg.Lease)
		}
	}
}

// settle waits until all permits are given back, or until end.
func (l *limiter) settle(end time.Time) {
	for n := 0; time.Now().Before(end); n++ {
		l.mu.Lock()
		l.start()
		settled := !l.working
		l.mu.Unlock()
		if settled {
			return
		}
		retry.Sleep(l.set.ctx, retry.Wait(n, minPause, maxPause))
	}
}

// retire removes a limiter that no job has used for emptyFor.
func (l *limiter) retire(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.working || l.used > 0 || l.held > 0 || len(l.waiters) > 0 || now.Sub(laterOf(l.looked, l.away)) < emptyFor {
		return
	}
	l.finish()
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	delete(l.set.limiters, l.name)
}

// end ends the limiter when the worker stops.
func (l *limiter) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finish()
}

func (l *limiter) finish() {
	l.dead = true
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.sub != nil {
		_ = l.sub.Unsubscribe() // the connection is closed, and with it the subscription
	}
	for len(l.waiters) > 0 {
		l.answer(l.waiters[0], grant{err: ErrClosed})
	}
}

// arrange gives a slot to each job that may get a permit now. The other jobs wait without a slot, or are sent away. It
// returns how many have a slot.
func (l *limiter) arrange(now time.Time) int {
	room, placed := l.room(now), 0
	l.starving = false
	for _, w := range slices.Clone(l.waiters) {
		switch {
		case w.done: // sent away in favour of another
		case placed < room && !l.starving && (!w.parked || w.slot == nil || w.slot.Take()):
			l.unpark(w)
			placed++
		case placed < room && w.parked:
			l.starving = true
		case w.parked:
		case w.try && !l.soon(now, w):
			l.answer(w, grant{err: errRefused})
		default:
			l.park(now, w)
		}
	}
	if l.starving {
		l.set.starve(l)
	}
	return placed
}

// park lets a job wait without a slot. When too many do, the last in line is sent away.
func (l *limiter) park(now time.Time, w *waiter) {
	parked, last := 0, w
	for _, other := range l.waiters {
		if other.parked {
			parked++
		}
		if other.parked && other.sequence > last.sequence && !other.try {
			last = other
		}
	}
	// No key takes more than half of the room: it takes at most as much as it leaves to others.
	if room := l.set.cfg.Waiting - int(l.set.parked.Load()); parked > 0 && parked >= room || room <= 0 {
		err := errRefused
		if !last.try {
			err = &FullError{Delay: l.delay(now)}
		}
		l.answer(last, grant{err: err})
	}
	if w.done {
		return
	}
	w.parked = true
	l.set.parked.Add(1)
	if w.slot != nil {
		w.slot.Give()
	}
}

// soon reports whether a job's start is so near that it may keep its other permits while it waits.
func (l *limiter) soon(now time.Time, w *waiter) bool {
	if l.spec.Rate == 0 || l.spec.Concurrency > 0 {
		return false
	}
	before := slices.Index(l.waiters, w)
	return l.rec.next(l.spec, now).Add(time.Duration(before) * l.spec.gap()).Before(now.Add(patience))
}

// room returns the number of jobs that can start now, by the last known record.
func (l *limiter) room(now time.Time) int {
	room := len(l.waiters)
	if l.spec.Concurrency > 0 {
		rec := l.rec.clone()
		rec.without(l.set.isGone)
		rec.set(l.owner, l.held, 0)
		room = min(room, l.most(rec, now)-l.used)
	}
	if l.spec.Rate > 0 {
		rec := l.rec
		room = min(room, len(rec.take(l.spec, now, max(room, 0))))
	}
	return max(room, 0)
}

// most returns the number of permits that this worker may have. The worker leaves the permits that it owes to other workers in line,
// unless they have left a free permit unused for grace. Until its turn ends it keeps the permits that it has, and takes no more.
func (l *limiter) most(rec record, now time.Time) int {
	lying := l.rec.total() < l.spec.Concurrency && !now.Before(l.seen.Add(grace))
	most := rec.most(l.spec.Concurrency, l.owner, !lying)
	if now.Before(l.turn) {
		return max(most, l.held)
	}
	return most
}

// pace measures the time between starts of the key's jobs here while some wait.
func (l *limiter) pace(now time.Time) {
	const weight = 8
	since := now.Sub(l.began)
	l.every = cmp.Or(l.every, since)
	l.every += (since - l.every) / weight
	l.began = now
}

// delay returns the time after which a job that is sent away should come back: a little before all jobs ahead of it, waiting here or sent
// away, have started, so that there is always a job to start. The delay is computed from the recent pace, or from the time without a
// start, and looks no further ahead than the time measured.
func (l *limiter) delay(now time.Time) time.Duration {
	const shortest, longest = 100 * time.Millisecond, time.Minute
	trusted := min(2*shortest+2*now.Sub(l.busy), longest)
	gap := max(l.every, now.Sub(l.began)) / 2
	if l.spec.Rate > 0 {
		gap = max(gap, l.spec.gap())
	}
	l.away = laterOf(l.away, now.Add(gap*time.Duration(len(l.waiters)/2))).Add(gap)
	wait := l.away.Sub(now)
	if wait < trusted {
		return max(wait, shortest)
	}
	l.away = now.Add(trusted)
	return trusted/2 + rand.N(trusted/2)
}
