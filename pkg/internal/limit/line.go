package limit

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// arrange gives a seat to each job that may get a permit now. The other jobs wait without a seat, or are sent away. It
// returns how many have a seat.
func (g *limiter) arrange(now time.Time) int {
	room, sit := g.room(now), 0
	g.starving = false
	for _, w := range slices.Clone(g.waiters) {
		switch {
		case w.done: // sent away in favour of another
		case sit < room && !g.starving && (!w.parked || w.seat.Take()):
			g.unpark(w)
			sit++
		case sit < room && w.parked:
			g.starving = true
		case w.parked:
		case w.try && !g.soon(now, w):
			g.answer(w, grant{err: errRefused})
		default:
			g.park(now, w)
		}
	}
	if g.starving {
		g.set.starve(g)
	}
	return sit
}

// park lets a job wait without a seat. When too many do, the last in line is sent away.
func (g *limiter) park(now time.Time, w *waiter) {
	parked, last := 0, w
	for _, other := range g.waiters {
		if other.parked {
			parked++
		}
		if other.parked && other.sequence > last.sequence && !other.try {
			last = other
		}
	}
	// No key takes more than half of the room: it takes at most as much as it leaves to others.
	if room := g.set.cfg.Waiting - int(g.set.parked.Load()); parked > 0 && parked >= room || room <= 0 {
		err := errRefused
		if !last.try {
			err = &FullError{Delay: g.delay(now)}
		}
		g.answer(last, grant{err: err})
	}
	if w.done {
		return
	}
	w.parked = true
	g.set.parked.Add(1)
	w.seat.Give()
}

// soon reports whether a job's start is so near that it may keep its other permits while it waits.
func (g *limiter) soon(now time.Time, w *waiter) bool {
	if g.spec.Rate == 0 || g.spec.Concurrency > 0 {
		return false
	}
	before := slices.Index(g.waiters, w)
	return g.rec.next(g.spec, now).Add(time.Duration(before) * g.spec.gap()).Before(now.Add(patience))
}

// room returns the number of jobs that can start now, by the last known record.
func (g *limiter) room(now time.Time) int {
	room := len(g.waiters)
	if g.spec.Concurrency > 0 {
		rec := g.rec.clone()
		rec.without(g.set.isGone)
		rec.set(g.owner, g.held, 0)
		room = min(room, g.most(rec, now)-g.used)
	}
	if g.spec.Rate > 0 {
		rec := g.rec
		room = min(room, len(rec.take(g.spec, now, max(room, 0))))
	}
	return max(room, 0)
}

// most returns the number of permits that this worker may have. The worker leaves the permits that it owes to other workers in line,
// unless they have left a free permit unused for grace. Until its turn ends it keeps the permits that it has, and takes no more.
func (g *limiter) most(rec record, now time.Time) int {
	lying := g.rec.total() < g.spec.Concurrency && !now.Before(g.seen.Add(grace))
	most := rec.most(g.spec.Concurrency, g.owner, !lying)
	if now.Before(g.turn) {
		return max(most, g.held)
	}
	return most
}

// pace measures the time between starts of the key's jobs here while some wait.
func (g *limiter) pace(now time.Time) {
	const weight = 8
	since := now.Sub(g.began)
	g.every = cmp.Or(g.every, since)
	g.every += (since - g.every) / weight
	g.began = now
}

// delay returns the time after which a job that is sent away should come back: a little before all jobs ahead of it, waiting here or sent
// away, have started, so that there is always a job to start. The delay is computed from the recent pace, or from the time without a
// start, and looks no further ahead than the time measured.
func (g *limiter) delay(now time.Time) time.Duration {
	const shortest, longest = 100 * time.Millisecond, time.Minute
	trusted := min(2*shortest+2*now.Sub(g.busy), longest)
	gap := max(g.every, now.Sub(g.began)) / 2
	if g.spec.Rate > 0 {
		gap = max(gap, g.spec.gap())
	}
	g.away = laterOf(g.away, now.Add(gap*time.Duration(len(g.waiters)/2))).Add(gap)
	wait := g.away.Sub(now)
	if wait < trusted {
		return max(wait, shortest)
	}
	g.away = now.Add(trusted)
	return trusted/2 + rand.N(trusted/2) //nolint:gosec // spreads, guards nothing
}
