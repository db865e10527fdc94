package kvlock

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// settle takes what came of a write.
func (g *gate) settle(t *transaction, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var conflict *conflictError
	switch {
	case err == nil:
		g.looked, g.failure, g.tries = t.began, nil, 0
		if t.next == nil || !t.next.Granted || t.next.Member != g.locker.member {
			g.wrote = wrote{sent: t.began, at: t.revision}
		}
		g.applied(t)
	case errors.As(err, &conflict):
		g.looked, g.failure = t.began, nil
		g.found(conflict.slot, t.change.expect)
		g.tries++
		if g.tries > 1 && !t.mine {
			g.rest = time.Now().Add(rand.N(min(minContention<<min(g.tries, 10), maxContention))) //nolint:gosec // spreads retries, guards nothing
		}
	default:
		if t.do == renew {
			g.notes = append(g.notes, note{t.lease.ctx, t.lease.event(EventRenewalFailed, err)})
		}
		g.failed(err)
	}
}

// tellWaiting emits, once for each, who has begun to wait, and for whom.
func (g *gate) tellWaiting() {
	if g.locker.observe == nil || g.rec == nil {
		return
	}
	for e := g.waiters.Back(); e != nil; e = e.Prev() {
		w := e.Value.(*waiter) //nolint:forcetypeassert // only waiters are in it
		if w.told {
			return
		}
		w.told = true
		g.notes = append(g.notes, note{w.values, Event{Kind: EventWaiting, Key: g.name, Claim: g.rec.lease, Owner: g.rec.instance}})
	}
}

// failed takes note of an error that says nothing of the record. When no other try will do better it ends who waits.
func (g *gate) failed(err error) {
	g.failure = err
	g.rest = time.Now().Add(maxSettleWait)
	if isPermanent(err) || !errors.Is(err, ErrUnavailable) {
		g.endAll(err)
		if g.lease != nil && g.lease.releasing {
			g.end(g.lease, err)
		}
	}
}

// applied takes note of an acknowledged write.
func (g *gate) applied(t *transaction) {
	if t.revision > g.at || t.change.expect == g.at {
		if !t.next.sameLife(g.rec) {
			g.life = newLife(t.next, time.Now())
		}
		g.at, g.created, g.rec = t.revision, time.Time{}, t.next
		g.kept = t.began.Add(t.change.ttl - time.Second)
	}
	if t.lease != nil && t.lease == g.lease {
		switch {
		case t.next != nil && t.next.lease == t.lease.id:
			t.lease.extend(t.began)
		case t.lease.releasing:
			g.end(t.lease, nil)
		default:
			g.lose(t.lease, fmt.Errorf("%w: lock %q was taken by force in this process", ErrLost, g.name))
		}
	}
	if t.taker == nil || t.taker.gone() || g.rec == nil || g.rec.lease != t.next.lease {
		return // the next look at the record finds what is to be done about it
	}
	g.deliver(t)
}

// found takes what the leader said of the record, at a write or a look that began when revision at was known. It is
// believed even if it is older than that. But a push may have overtaken it, by which this member holds the lock already:
// then it proves nothing of that.
func (g *gate) found(slot Slot, at uint64) { g.learn(slot, g.at == at) }

// learn takes what a read, a push or a refused write showed of the record. What is older than what is known is only
// believed with force.
func (g *gate) learn(slot Slot, force bool) {
	if slot.in().err != nil {
		g.endAll(slot.in().err)
		return
	}
	g.doubt = g.doubt && !force
	switch {
	case slot.Revision == g.at && slot.Revision != 0:
		if g.created.IsZero() {
			g.created = slot.Created
			g.life.shorten(g.rec, slot)
		}
		return
	case !force && g.older(slot):
		return
	}
	switch {
	case slot.Revision == 0 && !g.isMine(): // nobody released it: whoever held it may do so still
		g.life.born = slot.seen
	case slot.lock == nil, !slot.lock.sameLife(g.rec):
		g.life = newLife(slot.lock, slot.seen)
	}
	g.at, g.created, g.rec, g.kept = slot.Revision, slot.Created, slot.lock, time.Time{}
	g.life.shorten(g.rec, slot)
	if l := g.lease; l != nil && (g.rec == nil || g.rec.lease != l.id) {
		if l.releasing {
			g.end(l, nil)
		} else {
			g.lose(l, g.loss())
		}
	}
	g.accept(slot.seen)
}

// accept gives a lock that was handed to this member to who waits for it, without a word to the server, if the lease
// holds for a while, and can be confirmed in that. It begins with a write of ours that is older than the handing over:
// see rule 4.
func (g *gate) accept(now time.Time) {
	if g.inLine || g.lease != nil || g.closing != nil || !g.isMine() || !g.rec.Granted || g.waiters.Len() == 0 || g.handed == g.rec.lease {
		return
	}
	until := deadline(g.wrote.sent, grantTTL)
	if g.wrote.at == 0 || g.wrote.at >= g.rec.token(g.at) || until.Sub(now) < acceptFor {
		return
	}
	g.handed = g.rec.lease
	w := g.waiters.Front().Value.(*waiter) //nolint:forcetypeassert // only waiters are in it
	g.hand(w, &Lease{
		id: g.rec.lease, ttl: w.ttl, token: Token{Revision: g.rec.token(g.at)}, deadline: until, renewAt: now.Add(confirmAfter),
	})
}

// older says that what was told is not later than what is known. What looks like a bucket that was made anew, or like a
// record that is gone though it should be there, is not believed either, but asked about: with a lease in hand by
// renewing it, which proves more than reading.
func (g *gate) older(slot Slot) bool {
	switch {
	case slot.Revision > g.at:
		return false
	case slot.Revision == 0 && g.lease == nil && !time.Now().Before(g.kept):
		return false
	case slot.Revision != 0 && (g.created.IsZero() || !slot.Created.After(g.created)):
		return true
	case g.lease != nil:
		g.lease.renewAt = time.Time{}
	default:
		g.doubt = true
	}
	return true
}

func (g *gate) loss() error {
	if g.rec == nil {
		return fmt.Errorf("%w: lock %q was removed, or has expired", ErrLost, g.name)
	}
	how := "was taken over"
	if g.rec.Stolen != "" {
		how = "was taken by force"
	}
	return fmt.Errorf("%w: lock %q %s by %s", ErrLost, g.name, how, g.rec.instance)
}

func newLife(rec *lockRecord, seen time.Time) life {
	if rec == nil {
		return life{born: seen}
	}
	return life{born: seen, over: seen.Add(rec.ttl)}
}

// shorten takes what the server's own times prove: slot was stored so much later than the last renewal that its record
// tells of. The margin is for clocks of servers that differ. A clock may also have been set, by hours; so this counts
// only where the holder was asked whether it lives, and has had the time to answer by a renewal.
func (l *life) shorten(rec *lockRecord, slot Slot) {
	if rec == nil || rec.Renewed == 0 || !rec.Asked {
		return
	}
	if l.asked.IsZero() {
		l.asked = slot.seen
	}
	age := time.Duration(slot.Created.UnixNano() - rec.Renewed)
	over := slot.seen.Add(rec.ttl + skew(rec.ttl) - age)
	if answered := l.asked.Add(answerTime); over.Before(answered) {
		over = answered
	}
	if over.Before(l.over) {
		l.over = over
	}
}

// skew is by how much the clocks of servers are let differ.
func skew(ttl time.Duration) time.Duration { return time.Second + ttl/4 }

// deliver gives the lease that was taken to who waits for it.
func (g *gate) deliver(t *transaction) {
	until := deadline(t.began, t.next.ttl)
	if !time.Now().Before(until) {
		return // it took too long to learn of it
	}
	g.hand(t.taker, &Lease{
		id: t.next.lease, ttl: t.next.ttl, over: t.over, token: Token{Revision: t.revision},
		deadline: until, renewAt: t.began.Add(t.next.ttl / 3),
	})
}

// hand puts a lease into the hand of who waits for it.
func (g *gate) hand(w *waiter, l *Lease) {
	l.gate, l.name, l.metadata, l.taken, l.done = g, g.name, w.metadata, time.Now(), make(chan struct{})
	l.token.Epoch = g.locker.epoch.Load()
	l.ctx, l.cancel = context.WithCancelCause(w.values)
	l.timer = time.AfterFunc(time.Until(l.deadline), l.expire)
	g.lease = l
	g.finish(w, l, nil)
}

// finish ends a wait.
func (g *gate) finish(w *waiter, l *Lease, err error) {
	w.list.Remove(w.element)
	w.list = nil
	w.lease, w.err = l, err
	close(w.done)
}

// endAll ends everybody's wait.
func (g *gate) endAll(err error) {
	for _, all := range []*list.List{&g.waiters, &g.others} {
		for e := all.Front(); e != nil; e = all.Front() {
			g.finish(e.Value.(*waiter), nil, err) //nolint:forcetypeassert // only waiters are in it
		}
	}
}

// lose ends a lease that is not ours any more.
func (g *gate) lose(l *Lease, cause error) {
	l.cancel(cause)
	g.notes = append(g.notes, note{l.ctx, l.event(EventLost, cause)})
	g.end(l, cause)
}

// end takes the lease out of the hand. err is what Release returns.
func (g *gate) end(l *Lease, err error) {
	l.timer.Stop()
	l.err = err
	close(l.done)
	g.lease, g.used = nil, time.Now()
}

// abandon ends the gate: it could not even be followed.
func (g *gate) abandon(err error) {
	g.mu.Lock()
	g.endAll(err)
	g.working = false
	g.mu.Unlock()
	g.locker.rest(g)
}

// shut ends the use of the lock. The worker then gives back what is held.
func (g *gate) shut(cause error, by time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closing, g.closeBy = cause, by
	g.endAll(cause)
	if l := g.lease; l != nil && !l.releasing {
		l.release(cause)
	}
	g.start()
}

// isIdle says that nobody uses the gate.
func (g *gate) isIdle() bool {
	return !g.working && g.lease == nil && g.waiters.Len() == 0 && g.others.Len() == 0
}

// giveUp ends a wait that its caller does not go on with. It says false when it has ended already.
func (g *gate) giveUp(w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.gone() {
		return false
	}
	g.finish(w, nil, nil)
	g.used = time.Now()
	g.start()
	return true
}

// unanswered says why nobody answered since the waiter came; nil if somebody did.
func (g *gate) unanswered(w *waiter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	placed := g.rec != nil && g.queue().fits(g.locker.member, g.waiters.Len())
	if !w.now && (g.lease != nil || placed || !g.looked.Before(w.came)) {
		return nil
	}
	if errors.Is(g.failure, ErrUnavailable) {
		return g.failure
	}
	return fmt.Errorf("%w: no answer within %s", ErrUnavailable, g.locker.cfg.OpTimeout)
}

// heldBy is the error of who wanted the lock while somebody else holds it.
func (g *gate) heldBy() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.heldError()
}

func (g *gate) heldError() error {
	return &HeldError{Lock: g.rec.show(g.locker.epoch.Load(), Slot{Key: g.name, Revision: g.at, Created: g.created})}
}
