package limit

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// read reads the record. The caller holds mu, which read releases meanwhile.
func (g *limiter) read() {
	pushed := g.pushed
	g.mu.Unlock()
	found, err := g.set.get(g.subject)
	g.mu.Lock()
	if err != nil {
		g.fail(err)
		return
	}
	// The write that another worker announced may not be stored yet.
	const enough = 8 // the last one waits for 64 ms
	if pushed >= 0 && found.Revision <= uint64(pushed) && g.failed < enough {
		g.failed++
		g.pause()
		return
	}
	g.look, g.missed = g.pushed > pushed, false
	if !g.look {
		g.pushed = -1
	}
	g.learn(found)
}

// learn applies a record that was read. The record is a hint: the next write decides.
func (g *limiter) learn(found kvrecord.Record) {
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
	g.held = min(g.held, max(rec.of(g.owner), g.used)) // never count as spare a permit that another worker may have
	g.notice(now)
}

// notice begins a turn when other workers stand in line.
func (g *limiter) notice(now time.Time) {
	switch others := g.rec.owed(max(g.spec.Concurrency, 1), g.owner) > 0; {
	case !others || g.held == 0:
		g.turn = time.Time{}
	case g.turn.IsZero():
		g.turn = now.Add(turn)
	}
}

// write stores the planned record. The caller holds mu, which write releases meanwhile.
func (g *limiter) write() {
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
	g.held = min(g.held, p.rec.of(owner)) // a permit that the write gives back is gone, whatever the outcome of the write
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
		// A refusal proves no more than silence: the record is read, and written again.
		g.look = true
		g.fail(err)
	}
}

// stored applies an acknowledged write.
func (g *limiter) stored(p plan, owner string, at kvrecord.Record) {
	now := time.Now()
	gave := p.rec.of(owner) < g.rec.of(owner)
	g.at, g.failed, g.looked, g.rec, g.seen, g.wrote = at, 0, now, p.rec, now, now
	if g.pushed >= 0 && uint64(g.pushed) < at.Revision {
		g.pushed, g.look = -1, false // the announced write was refused, or is this one
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

// fail reports an error and waits before the next try.
func (g *limiter) fail(err error) {
	g.failed++
	g.set.report(err)
	g.pause()
}

// pause waits between two tries. The caller holds mu, which pause releases meanwhile.
func (g *limiter) pause() {
	wait := min(minPause<<min(g.failed, 12), maxPause)
	g.mu.Unlock()
	backoff.Pause(g.set.ctx, wait)
	g.mu.Lock()
}

// follow subscribes to the writes of other workers while a job waits here.
func (g *limiter) follow() {
	waits := len(g.waiters) > 0
	switch {
	case waits && g.sub == nil && g.spec.Concurrency > 0:
		// Workers publish their writes to this subject, so a subscriber receives each write when the stream does. Whether
		// the stream stored it is read afterwards.
		sub, err := g.set.cfg.Conn.Subscribe(g.subject, g.onPush)
		if err == nil {
			g.sub = sub
			g.look = true // a write may have been missed
		}
	case !waits && g.sub != nil && g.held == 0:
		_ = g.sub.Unsubscribe() //nolint:errcheck // the connection is closed, and with it the subscription
		g.sub = nil
	}
}

// onPush is called when a worker writes the record.
func (g *limiter) onPush(msg *nats.Msg) {
	const bits = 63
	replaced, err := strconv.ParseUint(msg.Header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, bits)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil || replaced < g.at.Revision {
		return // the server will refuse it, or it is the write that stored g.at
	}
	g.pushed = max(g.pushed, int64(replaced))
	if rec, err := decode(msg.Data); err == nil && g.ignores(rec) {
		g.missed, g.seen = true, time.Now()
		g.wake(g.seen)
		return
	}
	g.look = true
	g.start()
}

// ignores reports whether a pushed record needs no action here, because this worker stands in line behind others that may take the free
// permits. The record is then read only when no other record has followed for grace. If all waiting workers read each write, a write would
// cost as many reads as there are workers.
func (g *limiter) ignores(rec record) bool {
	return g.held == 0 && slices.Contains(rec.Queue, g.owner) && rec.most(g.spec.Concurrency, g.owner, true) == 0
}

// wake sets the timer to the time of the limiter's next look.
func (g *limiter) wake(now time.Time) {
	var at time.Time
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if len(g.waiters) > 0 {
		if g.starving {
			sooner(now.Add(grace)) // a seat may have become free before starve recorded the wait
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

// due is called when the timer ends.
func (g *limiter) due() {
	g.mu.Lock()
	defer g.mu.Unlock()
	// A push may have been lost, or the first in line has not taken the free permits.
	overdue := time.Since(g.looked) >= recheck/2 || g.missed && time.Since(g.seen) >= grace
	if overdue && len(g.waiters) > 0 && g.spec.Concurrency > 0 {
		g.look = true
	}
	g.start()
}

// watch makes the set check the workers that have or want permits of this key.
func (g *limiter) watch() {
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

// settle waits until all permits are given back, or until end.
func (g *limiter) settle(end time.Time) {
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

// retire removes a limiter that no job has used for emptyFor.
func (g *limiter) retire(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.working || g.used > 0 || g.held > 0 || len(g.waiters) > 0 || now.Sub(laterOf(g.looked, g.away)) < emptyFor {
		return
	}
	g.finish()
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	delete(g.set.limiters, g.name)
}

// end ends the limiter when the worker stops.
func (g *limiter) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.finish()
}

func (g *limiter) finish() {
	g.dead = true
	if g.timer != nil {
		g.timer.Stop()
	}
	if g.sub != nil {
		_ = g.sub.Unsubscribe() //nolint:errcheck // the connection is closed, and with it the subscription
	}
	for len(g.waiters) > 0 {
		g.answer(g.waiters[0], grant{err: ErrClosed})
	}
}
