package limit

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// read learns what the record is. It is called with mu held, and lets go of it meanwhile.
func (g *gate) read() {
	pushed := g.pushed

	g.mu.Unlock()
	found, err := g.set.get(g.subject)
	g.mu.Lock()

	if err != nil {
		g.fail(err)

		return
	}

	// What somebody was about to write may not be there yet.
	const enough = 8 // the last one waits for 64 ms

	if pushed >= 0 && found.Revision <= uint64(pushed) && g.failed < enough {
		g.failed++
		g.pause()

		return
	}

	g.look = g.pushed > pushed
	if !g.look {
		g.pushed = -1
	}

	g.learn(found)
}

// learn takes what was read. A write decides whether it is true.
func (g *gate) learn(found kvrecord.Record) {
	now := time.Now()

	rec, err := decode(found.Data)
	if err != nil {
		err = &RecordError{Cause: err, Subject: g.subject}

		for len(g.waiters) > 0 {
			g.answer(g.waiters[0], grant{err: err})
		}

		g.look, g.looked = false, now
		g.fail(err)

		return
	}

	g.failed = 0

	if found.Revision != g.at.Revision || g.looked.IsZero() {
		g.seen = now
	}

	g.at, g.looked, g.rec = found, now, rec
	g.held = min(g.held, max(rec.of(g.owner), g.used)) // never take for spare what others may have
	g.notice(now)
}

// notice begins a turn when others stand in line.
func (g *gate) notice(now time.Time) {
	switch others := g.rec.owed(max(g.spec.Concurrency, 1), g.owner) > 0; {
	case !others || g.held == 0:
		g.turn = time.Time{}
	case g.turn.IsZero():
		g.turn = now.Add(turn)
	}
}

// write stores what is wanted. It is called with mu held, and lets go of it meanwhile.
func (g *gate) write() {
	if g.spec.Concurrency > 0 {
		g.mu.Unlock()
		live := g.set.ensure()
		g.mu.Lock()

		if !live {
			g.fail(ErrLost)

			return
		}
	}

	g.sync()

	now := time.Now()

	p := g.plan(now, g.arrange(now))
	if !p.write {
		return
	}

	owner, over := g.owner, g.at
	g.held = min(g.held, p.rec.of(owner)) // what is given away is gone, whatever comes of the write

	g.mu.Unlock()
	stored, err := g.set.put(g.subject, p.rec, over, p.rec.kept(now))
	g.mu.Lock()

	switch {
	case err == nil:
		g.stored(p, owner, stored)
	case errors.Is(err, kvrecord.ErrConflict):
		g.look = true
		g.failed++
		g.pause()
	default:
		// A refusal says as little as silence: what is stored is read, and written anew.
		g.look = true
		g.fail(err)
	}
}

// stored takes an acknowledgement.
func (g *gate) stored(p plan, owner string, at kvrecord.Record) {
	now := time.Now()
	gave := p.rec.of(owner) < g.rec.of(owner)
	g.at, g.failed, g.looked, g.rec, g.seen, g.wrote = at, 0, now, p.rec, now, now

	if g.pushed >= 0 && uint64(g.pushed) < at.Revision {
		g.pushed, g.look = -1, false // it was refused, or is this write
	}

	if g.spec.Concurrency > 0 {
		if owner != g.owner || !g.set.isLive(owner) {
			return // the lease ended meanwhile
		}

		g.held = p.rec.of(owner)
	}

	if gave {
		g.turn = time.Time{}
	}

	g.notice(now)
	g.admit(p)
}

// fail waits for a while.
func (g *gate) fail(err error) {
	g.failed++
	g.set.report(err)
	g.pause()
}

// pause waits between two tries. It is called with mu held, and lets go of it meanwhile.
func (g *gate) pause() {
	wait := min(minPause<<min(g.failed, 12), maxPause)

	g.mu.Unlock()
	backoff.Pause(g.set.ctx, wait)
	g.mu.Lock()
}

// follow listens to what others write while somebody waits here.
func (g *gate) follow() {
	waits := len(g.waiters) > 0

	switch {
	case waits && g.sub == nil && g.spec.Concurrency > 0:
		// The bucket's stream takes what is published here, and so do those who listen: that
		// somebody writes is known at once, and what became of it is read.
		sub, err := g.set.cfg.Conn.Subscribe(g.subject, g.heard)
		if err == nil {
			g.sub = sub
			g.look = true // something may have been missed
		}
	case !waits && g.sub != nil && g.held == 0:
		_ = g.sub.Unsubscribe() //nolint:errcheck // the connection is gone, and it with it
		g.sub = nil
	}
}

// heard is called when somebody writes.
func (g *gate) heard(msg *nats.Msg) {
	const bits = 63

	replaced, err := strconv.ParseUint(msg.Header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, bits)

	g.mu.Lock()
	defer g.mu.Unlock()

	if err != nil || replaced < g.at.Revision {
		return // it will be refused, or is the write that g.at was stored by
	}

	g.look, g.pushed = true, max(g.pushed, int64(replaced))
	g.start()
}

// wake sets the timer for what is next.
func (g *gate) wake(now time.Time) {
	var at time.Time

	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}

	if len(g.waiters) > 0 {
		if g.starving {
			sooner(now.Add(grace)) // one may have been left before that was known
		}

		if g.spec.Concurrency > 0 {
			sooner(now.Add(recheck/2 + rand.N(recheck/2))) //nolint:gosec // spreads, guards nothing
			g.watch()

			for _, t := range []time.Time{g.seen.Add(grace), g.turn} {
				if t.After(now) {
					sooner(t)
				}
			}
		}

		if g.spec.Rate > 0 {
			if next := g.rec.next(g.spec, now).Add(-horizon); next.After(now) {
				sooner(next)
			}
		}
	}

	if g.held > 0 {
		sooner(g.wrote.Add(refreshFor + time.Second))
	}

	if at.IsZero() {
		if g.timer != nil {
			g.timer.Stop()
		}

		return
	}

	if g.timer == nil {
		g.timer = time.AfterFunc(at.Sub(now), g.due)
	} else {
		g.timer.Reset(at.Sub(now))
	}
}

// due is called by the timer.
func (g *gate) due() {
	g.mu.Lock()
	defer g.mu.Unlock()

	if len(g.waiters) > 0 && g.spec.Concurrency > 0 && time.Since(g.looked) >= recheck/2 {
		g.look = true // a push may have been lost
	}

	g.start()
}

// watch has those looked at who have, or want, what is waited for.
func (g *gate) watch() {
	for _, h := range g.rec.Holders {
		if h.ID != g.owner {
			g.set.watch(h.ID, h.TTL)
		}
	}

	for _, id := range g.rec.Queue {
		if id != g.owner && g.rec.of(id) == 0 {
			g.set.watch(id, g.set.cfg.Lease)
		}
	}
}

// settle waits until all is given back, or until the given time.
func (g *gate) settle(end time.Time) {
	for pause := minPause; time.Now().Before(end); pause = min(2*pause, maxPause) {
		g.mu.Lock()
		g.start()
		settled := !g.working
		g.mu.Unlock()

		if settled {
			return
		}

		backoff.Sleep(g.set.ctx, pause)
	}
}

// retire lets go of a gate that nobody has used for long.
func (g *gate) retire(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.working || g.used > 0 || g.held > 0 || len(g.waiters) > 0 || now.Sub(laterOf(g.looked, g.away)) < emptyFor {
		return
	}

	g.finish()

	g.set.mu.Lock()
	defer g.set.mu.Unlock()

	delete(g.set.gates, g.name)
}

// end is retire when the worker stops.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.finish()
}

func (g *gate) finish() {
	g.dead = true

	if g.timer != nil {
		g.timer.Stop()
	}

	if g.sub != nil {
		_ = g.sub.Unsubscribe() //nolint:errcheck // the connection is gone, and it with it
	}

	for len(g.waiters) > 0 {
		g.answer(g.waiters[0], grant{err: ErrClosed})
	}
}
