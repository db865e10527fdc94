package kvlock

import (
	"container/list"
	"errors"
	"time"

	"github.com/nats-io/nuid"
)

// action is what a gate does next.
type action uint8

const (
	nothing action = iota
	look           // at the record, for who wants to know now
	take           // the lock, for who waits
	renew          // the lease in hand
	pass           // the lock on: to the next in the queue, or to nobody
	queueUp        // or leave the queue
	touch          // the record, to learn the server's time
)

// decide says what is to be done now, for whom, or when to decide again; zero is when something is learnt.
func (g *gate) decide(now time.Time) (do action, w *waiter, when time.Time) {
	if g.closing != nil && !now.Before(g.closeBy) {
		if g.lease != nil {
			g.end(g.lease, errors.Join(ErrUnavailable, g.failure))
		}
		return nothing, nil, time.Time{}
	}
	if g.isMine() && g.lease == nil && !g.kept.IsZero() && now.After(g.kept) {
		g.at, g.rec, g.life, g.kept = 0, nil, life{}, time.Time{} // what was ours is gone, or somebody else's
	}
	switch force := g.forced(); {
	case force != nil:
		return g.unlessResting(now, take, force)
	case g.lease != nil:
		g.refuse()
		return g.decideInHand(now)
	case g.doubt && g.next() != nil:
		return g.unlessResting(now, look, nil)
	case g.isMine():
		return g.decideMine(now)
	case g.rec != nil:
		return g.decideWaiting(now)
	case now.Before(g.life.over):
		g.refuse()
		return nothing, nil, g.life.over
	case g.next() != nil:
		return g.unlessResting(now, take, g.next())
	default:
		return nothing, nil, time.Time{}
	}
}

// isMine says that the record shows the lock as this member's.
func (g *gate) isMine() bool { return g.rec != nil && g.rec.Member == g.locker.member }

// decideMine is decide when the lock is this member's and in nobody's hand: it was handed over, or nobody learnt what
// came of a write, or it came too late. Only who the lock is for takes it; otherwise it goes on.
func (g *gate) decideMine(now time.Time) (action, *waiter, time.Time) {
	switch {
	case g.rec.Granted && g.waiters.Len() > 0:
		return g.unlessFailing(now, take, g.waiters.Front().Value.(*waiter)) //nolint:forcetypeassert // only waiters are in it
	case g.taking == g.rec.lease && !g.taker.gone():
		return g.unlessFailing(now, take, g.taker)
	default:
		return g.unlessFailing(now, pass, nil)
	}
}

// decideInHand is decide while a lease is in hand.
func (g *gate) decideInHand(now time.Time) (action, *waiter, time.Time) {
	switch l := g.lease; {
	case l.releasing:
		return g.unlessFailing(now, pass, nil)
	case !now.Before(l.renewAt) || g.rec != nil && g.rec.Asked:
		return g.unlessFailing(now, renew, nil)
	case !g.queue().fits(g.locker.member, g.waiters.Len()):
		if do, _, when := g.unlessResting(now, queueUp, nil); do != nothing || when.Before(l.renewAt) {
			return do, nil, when
		}
		fallthrough
	default:
		g.tellWaiting()
		return nothing, nil, l.renewAt
	}
}

// decideWaiting is decide while somebody else holds the lock.
func (g *gate) decideWaiting(now time.Time) (action, *waiter, time.Time) {
	q := g.queue()
	fits := q.fits(g.locker.member, g.waiters.Len())
	var when time.Time
	if w := g.next(); w != nil {
		if when = g.life.over; !now.Before(when) { // and only then count who comes before
			when = when.Add(time.Duration(q.without(g.rec.Member).ahead(g.locker.member)) * takeOverStep)
		}
		if !now.Before(when) {
			return g.unlessResting(now, take, w)
		}
	}
	if g.others.Len() > 0 && g.lookDue() {
		return g.unlessResting(now, look, nil)
	}
	if w := g.doubter(now); w != nil {
		return g.unlessResting(now, touch, w)
	}
	if g.others.Len() > 0 && g.rec.Asked && g.life.over.Sub(now) <= answerTime {
		return nothing, nil, when // the holder may answer
	}
	g.refuse()
	if fits {
		g.tellWaiting()
		return nothing, nil, when
	}
	return g.unlessResting(now, queueUp, nil)
}

// doubter is somebody who wants to know and to whom it seems, by this process's clock, that nobody has renewed the lock
// for longer than its TTL: a write, whose time is the server's, can prove it. Each tries once.
func (g *gate) doubter(now time.Time) *waiter {
	if now.Sub(g.renewed()) <= g.rec.ttl+skew(g.rec.ttl) {
		return nil
	}
	for e := g.others.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); !w.touched { //nolint:forcetypeassert // only waiters are in it
			return w
		}
	}
	return nil
}

// renewed is when the server stored the last renewal, by its clock.
func (g *gate) renewed() time.Time {
	if g.rec.Renewed != 0 {
		return time.Unix(0, g.rec.Renewed)
	}
	return g.created
}

// unlessResting is the action, or when it may be tried.
func (g *gate) unlessResting(now time.Time, do action, w *waiter) (action, *waiter, time.Time) {
	if now.Before(g.rest) {
		return nothing, nil, g.rest
	}
	return do, w, time.Time{}
}

// unlessFailing is unlessResting for what does not wait for others to have written.
func (g *gate) unlessFailing(now time.Time, do action, w *waiter) (action, *waiter, time.Time) {
	if g.failure != nil {
		return g.unlessResting(now, do, w)
	}
	return do, w, time.Time{}
}

func (g *gate) queue() queue {
	if g.rec == nil {
		return nil
	}
	return g.rec.queue
}

// next is whose turn it is in this process.
func (g *gate) next() *waiter {
	for _, all := range []*list.List{&g.waiters, &g.others} {
		if e := all.Front(); e != nil {
			return e.Value.(*waiter) //nolint:forcetypeassert // only waiters are in it
		}
	}
	return nil
}

// forced is who wants the lock by force.
func (g *gate) forced() *waiter {
	for e := g.others.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); w.force { //nolint:forcetypeassert // only waiters are in it
			return w
		}
	}
	return nil
}

// lookDue says that somebody wants to know, and came after the last look; or that the time is not known of what was
// written to learn it.
func (g *gate) lookDue() bool {
	if g.created.IsZero() {
		return true
	}
	for e := g.others.Front(); e != nil; e = e.Next() {
		if e.Value.(*waiter).came.After(g.looked) { //nolint:forcetypeassert // only waiters are in it
			return true
		}
	}
	return false
}

// refuse tells those who wanted the lock now that it is held.
func (g *gate) refuse() {
	for g.others.Len() > 0 {
		w := g.others.Front().Value.(*waiter) //nolint:forcetypeassert // only waiters are in it
		g.finish(w, nil, g.heldError())
	}
}

// compose computes the write for an action. Whatever it is for, it also gives this member the places in the queue that
// its waiters need.
func (g *gate) compose(do action, w *waiter, now time.Time) *transaction {
	l := g.locker
	t := &transaction{do: do, lease: g.lease, mine: g.isMine()}
	q := g.queue()
	switch do {
	case take:
		if g.rec != nil && !t.mine {
			if !w.force {
				q = q.without(g.rec.Member) // whoever it was does not live
				t.over = g.rec.instance
			}
			if w.list == &g.waiters {
				q = q.leave(l.member)
			}
		}
		t.next, t.taker = g.newRecord(w, now), w
	case pass:
		q = q.fit(l.member, l.instance, g.waiters.Len())
		if len(q) > 0 {
			q = g.handOver(t, q, now)
		}
	case renew, queueUp, touch:
		if w != nil {
			w.touched = true
		}
		t.next = g.sameHolder()
	case nothing, look:
	}
	t.change = change{key: g.name, expect: g.at, held: g.kept, within: g.hurry(t.next)}
	if g.others.Len() == 0 { // who is refused the lock is refused it for what it is now, not for what was pushed
		t.change.pushed = g.lastPushed
	}
	if t.next == nil {
		t.change.purge, t.change.ttl = true, markerTTL(storedFor(l.cfg.TTL))
		t.data, t.err = t.change.data()
		return t
	}
	places := g.waiters.Len()
	if t.taker != nil {
		g.taker, g.taking = t.taker, t.next.lease
		if t.taker.list == &g.waiters {
			places--
		}
	}
	t.next.queue = q.fit(l.member, l.instance, places)
	t.change.ttl = storedFor(t.next.ttl)
	t.change.record = record{
		Version: recordVersion, State: held.String(), Claim: t.next.lease, Owner: nuid.Next(), Instance: t.next.instance,
		TTL: seconds(t.next.ttl),
	}
	if t.change.value, t.err = t.next.encode(); t.err == nil {
		t.data, t.err = t.change.data()
	}
	return t
}

// hurry bounds a try to confirm the lease in hand, so that there is time for another.
func (g *gate) hurry(next *lockRecord) time.Duration {
	if next != nil && g.isMine() && g.rec.Granted && next.lease == g.rec.lease {
		return acceptFor / 2
	}
	return 0
}

// handOver gives the lock to the first in the queue: when it is of this process, as a lease at once.
func (g *gate) handOver(t *transaction, q queue, now time.Time) queue {
	head := q[0]
	if head.member == g.locker.member {
		w := g.waiters.Front().Value.(*waiter) //nolint:forcetypeassert // only waiters are in it
		t.next, t.taker = g.newRecord(w, now), w
	} else {
		t.next = &lockRecord{
			lease: nuid.Next(), instance: head.instance, ttl: grantTTL, Member: head.member, Granted: true, Since: now.UnixMilli(),
		}
	}
	return q.leave(head.member)
}

// sameHolder is the record with the same holder, who renews it if it is in our hand.
func (g *gate) sameHolder() *lockRecord {
	next := *g.rec
	next.Token = next.token(g.at)
	if l := g.lease; l != nil {
		next.Renewal++
		next.Renewed, next.Asked = 0, false
		if next.Granted {
			next.Granted, next.instance, next.ttl, next.Metadata = false, g.locker.instance, l.ttl, l.metadata
			next.Since = l.taken.UnixMilli()
		}
		return &next
	}
	if next.Renewed == 0 && !g.created.IsZero() {
		next.Renewed = g.created.UnixNano()
	}
	// One that lives renews more often than that, unless a clock is wrong.
	next.Asked = next.Asked || next.Renewed != 0 && time.Since(time.Unix(0, next.Renewed)) > next.ttl/2
	return &next
}

// newRecord is the lock as w holds it.
func (g *gate) newRecord(w *waiter, now time.Time) *lockRecord {
	next := &lockRecord{
		lease: nuid.Next(), instance: g.locker.instance, ttl: w.ttl, Member: g.locker.member, Metadata: w.metadata,
		Since: now.UnixMilli(),
	}
	if w.force && g.rec != nil {
		next.Stolen = g.rec.instance
	}
	return next
}

// storedFor is how long the server keeps the record of a lock whose lease lives for ttl. It is not what ends the lease:
// those who wait see that, and are done long before.
func storedFor(ttl time.Duration) time.Duration { return min(max(2*ttl, time.Minute), maxTTL) }
