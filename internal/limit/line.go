package limit

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

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
