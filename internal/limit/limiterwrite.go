package limit

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// read reads the record. The caller holds mu, which read releases meanwhile.
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

// write stores the planned record. The caller holds mu, which write releases meanwhile.
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
			return // the lease ended meanwhile
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

// pause waits between two tries. The caller holds mu, which pause releases meanwhile.
func (l *limiter) pause() {
	wait := min(minPause<<min(l.failed, 12), maxPause)
	l.mu.Unlock()
	retry.Jitter(l.set.ctx, wait)
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
	for pause := minPause; time.Now().Before(end); pause = min(2*pause, maxPause) {
		l.mu.Lock()
		l.start()
		settled := !l.working
		l.mu.Unlock()
		if settled {
			return
		}
		retry.Sleep(l.set.ctx, pause)
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
