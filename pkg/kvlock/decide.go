package kvlock

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// action is the next step of an agent.
type action uint8

const (
	nothing action = iota
	look           // look at the record, for a caller that does not wait
	probe          // probe the members before this one
	take           // the lock, for a waiter
	renew          // the lease in hand
	pass           // pass the lock on to the next in the queue, or release it
	queueUp        // or leave the queue
	touch          // touch the record, to learn the server's time
)

// decide returns the action that is due now and its waiter, or the time of the next decision. A zero time means: with the next push or
// answer.
func (a *agent) decide(now time.Time) (do action, w *waiter, when time.Time) {
	if a.closing != nil && !now.Before(a.closeBy) {
		if a.lease != nil {
			a.end(a.lease, errors.Join(ErrUnavailable, a.failure))
		}
		return nothing, nil, time.Time{}
	}
	if a.isMine() && a.lease == nil && !a.held.IsZero() && now.After(a.held) {
		a.at, a.rec, a.observed, a.held = 0, nil, observedLease{}, time.Time{} // the lease that was ours is gone, or another member's
	}
	switch force := a.forced(); {
	case force != nil:
		return a.unlessResting(now, take, force)
	case a.lease != nil:
		a.refuse()
		return a.decideInHand(now)
	case a.stale && a.next() != nil:
		return a.unlessResting(now, look, nil)
	case a.isMine():
		return a.decideMine(now)
	case a.rec != nil:
		return a.decideWaiting(now)
	case now.Before(a.observed.expiresAt):
		a.refuse()
		return nothing, nil, a.observed.expiresAt
	case a.next() != nil:
		return a.unlessResting(now, take, a.next())
	default:
		return nothing, nil, time.Time{}
	}
}

// isMine reports whether the record has this member as the holder.
func (a *agent) isMine() bool { return a.rec != nil && a.rec.Member == a.locker.member }

// decideMine is decide when this member has the lock without a lease in hand: the lock was handed over, or the outcome of a write is
// unknown, or came too late. Only the waiter for which the lock is meant takes it; otherwise it is passed on.
func (a *agent) decideMine(now time.Time) (action, *waiter, time.Time) {
	switch {
	case a.rec.Granted && a.waiters.Len() > 0:
		return a.unlessFailing(now, take, front(&a.waiters))
	case a.pendingLease == a.rec.Lease && !a.taker.gone():
		return a.unlessFailing(now, take, a.taker)
	default:
		return a.unlessFailing(now, pass, nil)
	}
}

// decideInHand is decide while a lease is in hand.
func (a *agent) decideInHand(now time.Time) (action, *waiter, time.Time) {
	switch l := a.lease; {
	case l.releasing:
		return a.unlessFailing(now, pass, nil)
	case !now.Before(l.renewAt) || a.rec != nil && a.rec.Asked:
		return a.unlessFailing(now, renew, nil)
	case !a.queue().fits(a.locker.member, a.waiters.Len()):
		if do, _, when := a.unlessResting(now, queueUp, nil); do != nothing || when.Before(l.renewAt) {
			return do, nil, when
		}
		fallthrough
	default:
		return nothing, nil, l.renewAt
	}
}

// decideWaiting is decide while another member holds the lock.
func (a *agent) decideWaiting(now time.Time) (action, *waiter, time.Time) {
	q := a.queue()
	fits := q.fits(a.locker.member, a.waiters.Len())
	var when time.Time
	if w := a.next(); w != nil {
		if when = a.observed.expiresAt; !now.Before(when) { // and only then count the members before this one
			before := len(a.before())
			if before > 0 && !a.observed.probed {
				return a.unlessResting(now, probe, nil)
			}
			when = when.Add(time.Duration(before-len(a.observed.gone)) * takeOverStep)
		}
		if !now.Before(when) {
			return a.unlessResting(now, take, w)
		}
	}
	if a.others.Len() > 0 && a.lookDue() {
		return a.unlessResting(now, look, nil)
	}
	if w := a.doubter(now); w != nil {
		return a.unlessResting(now, touch, w)
	}
	if a.others.Len() > 0 && a.rec.Asked && a.observed.expiresAt.Sub(now) <= answerTime {
		return nothing, nil, when // the holder may answer
	}
	a.refuse()
	if fits {
		return nothing, nil, when
	}
	return a.unlessResting(now, queueUp, nil)
}

// before returns the members that may take the lock of a dead holder before this one, the last first.
func (a *agent) before() []string {
	members := a.rec.queue.without(a.rec.Member).before(a.locker.member)
	slices.Reverse(members)
	return members
}

// doubter returns a caller that does not wait, if by this process's clock the lock was not renewed for longer than its TTL. A write can
// prove that, by the server's time. Each of these callers causes one write.
func (a *agent) doubter(now time.Time) *waiter {
	if now.Sub(a.renewed()) <= a.rec.TTL+skew(a.rec.TTL) {
		return nil
	}
	for e := a.others.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); !w.touched { //nolint:forcetypeassert // only waiters are in it
			return w
		}
	}
	return nil
}

// renewed returns the time at which the server stored the last renewal, by the server's clock.
func (a *agent) renewed() time.Time {
	if a.rec.Renewed != 0 {
		return time.Unix(0, a.rec.Renewed)
	}
	return a.created
}

// unlessResting returns the action, or the time from which it may be taken.
func (a *agent) unlessResting(now time.Time, do action, w *waiter) (action, *waiter, time.Time) {
	if now.Before(a.rest) {
		return nothing, nil, a.rest
	}
	return do, w, time.Time{}
}

// unlessFailing is unlessResting for actions that do not wait because other members wrote.
func (a *agent) unlessFailing(now time.Time, do action, w *waiter) (action, *waiter, time.Time) {
	if a.failure != nil {
		return a.unlessResting(now, do, w)
	}
	return do, w, time.Time{}
}

func (a *agent) queue() queue {
	if a.rec == nil {
		return nil
	}
	return a.rec.queue
}

// next returns the waiter of this process whose turn it is.
func (a *agent) next() *waiter {
	return cmp.Or(front(&a.waiters), front(&a.others))
}

// front returns the first waiter in a list, nil when it is empty.
func front(of *list.List) *waiter {
	if e := of.Front(); e != nil {
		return e.Value.(*waiter) //nolint:forcetypeassert // only waiters are in it
	}
	return nil
}

// forced returns a waiter that wants the lock by force.
func (a *agent) forced() *waiter {
	for e := a.others.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); w.force { //nolint:forcetypeassert // only waiters are in it
			return w
		}
	}
	return nil
}

// lookDue reports whether the record has to be read: for a caller that does not wait and came after the last read, or to learn the
// server's time of a write.
func (a *agent) lookDue() bool {
	if a.created.IsZero() {
		return true
	}
	for e := a.others.Front(); e != nil; e = e.Next() {
		if e.Value.(*waiter).came.After(a.looked) { //nolint:forcetypeassert // only waiters are in it
			return true
		}
	}
	return false
}

// refuse ends the waits of the callers that do not wait: the lock is held.
func (a *agent) refuse() {
	for w := front(&a.others); w != nil; w = front(&a.others) {
		a.finish(w, nil, a.heldError())
	}
}

// transaction is a write whose outcome is not known yet.
type transaction struct {
	agent  *agent
	change kv.Change
	next   *record // nil: the lock is free
	taker  *waiter // the waiter that gets the lease if the write is ours
	lease  *Lease  // the lease in hand when the write was computed
	mine   bool    // the replaced record was this member's
	owner  string  // unique for this write
	pushes bool    // a push may prove the outcome
	found  state   // the state of the lock, read when the write was not acknowledged
	began  time.Time
	err    error // it cannot be sent

	revision uint64
}

// Found compares the lock's record with the record that this transaction wrote, for the store.
func (t *transaction) Found(ctx context.Context, e kv.Entry) kv.Found {
	t.found = t.agent.locker.state(ctx, e)
	return t.outcome()
}

// Pushed is Found with the last state that was pushed.
func (t *transaction) Pushed() kv.Found {
	if !t.pushes {
		return kv.Found{}
	}
	t.agent.mu.Lock()
	pushed := t.agent.pushed
	t.agent.mu.Unlock()
	if pushed.revision <= t.change.Expect {
		return kv.Found{}
	}
	t.found = pushed
	return t.outcome()
}

func (t *transaction) outcome() kv.Found {
	r := t.found.record
	return kv.Found{Revision: t.found.revision, Ours: r != nil && r.writer != "" && r.writer == t.owner, Err: t.found.err}
}

// compose computes the write for an action. Each write also gives this member the places in the queue that its waiters
// need.
func (a *agent) compose(do action, w *waiter, now time.Time) *transaction {
	m := a.locker
	t := &transaction{agent: a, lease: a.lease, mine: a.isMine()}
	q := a.queue()
	switch do {
	case take:
		if a.rec != nil && !t.mine {
			if !w.force {
				q = q.without(append(slices.Clip(a.observed.gone), a.rec.Member)...) // these members do not live
			}
			if w.list == &a.waiters {
				q = q.leave(m.member)
			}
		}
		t.next, t.taker = a.newRecord(w, now), w
	case pass:
		q = q.fit(m.member, m.store.Instance, a.waiters.Len())
		if len(q) > 0 {
			q = a.handOver(t, q, now)
		}
	case renew, queueUp, touch:
		if w != nil {
			w.touched = true
		}
		t.next = a.sameHolder()
	case nothing, look, probe:
	}
	t.change = kv.Change{
		Key: a.key, Expect: a.at, Held: a.held, Within: a.sendTimeout(t.next), Writer: t, Generation: a.generation,
		Token: t.taker != nil || do == queueUp, // a place in the queue may lead to a lease without another write
	}
	t.pushes = a.others.Len() == 0 // a refusal of a caller needs the present state, not a pushed one
	if t.next == nil {
		t.change.Purge, t.change.TTL = true, kv.MarkerTTL(storedFor(m.ttl))
		return t
	}
	places := a.waiters.Len()
	if t.taker != nil {
		a.taker, a.pendingLease = t.taker, t.next.Lease
		if t.taker.list == &a.waiters {
			places--
		}
	}
	t.next.queue = q.fit(m.member, m.store.Instance, places)
	t.owner, t.change.TTL = nuid.Next(), storedFor(t.next.TTL)
	t.next.writer = t.owner
	t.change.Data, t.err = t.next.encode(t.owner)
	m.written.Store(&written{data: t.change.Data, record: t.next})
	return t
}

// sendTimeout returns the bound of each try to confirm the lease in hand, so that there is time for another try.
func (a *agent) sendTimeout(next *record) time.Duration {
	if next != nil && a.isMine() && a.rec.Granted && next.Lease == a.rec.Lease {
		return acceptFor / 2
	}
	return 0
}

// handOver gives the lock to the first in the queue. A waiter of this process gets the lease at once.
func (a *agent) handOver(t *transaction, q queue, now time.Time) queue {
	head := q[0]
	if head.member == a.locker.member {
		w := front(&a.waiters)
		t.next, t.taker = a.newRecord(w, now), w
	} else {
		t.next = &record{
			Lease: nuid.Next(), Instance: head.instance, TTL: grantTTL, Member: head.member, Granted: true, Since: now.UnixMilli(),
		}
	}
	return q.leave(head.member)
}

// sameHolder returns a record with the same holder: a renewal if this member has the lease in hand.
func (a *agent) sameHolder() *record {
	next := *a.rec
	next.Token = next.takenAt(a.at)
	if l := a.lease; l != nil {
		next.Renewal++
		next.Renewed, next.Asked = 0, false
		if next.Granted {
			next.Granted, next.Instance, next.TTL, next.Metadata = false, a.locker.store.Instance, l.ttl, l.metadata
			next.Since = l.taken.UnixMilli()
		}
		return &next
	}
	if next.Renewed == 0 && !a.created.IsZero() {
		next.Renewed = a.created.UnixNano()
	}
	// A live holder renews more often than that, unless a clock is wrong.
	next.Asked = next.Asked || next.Renewed != 0 && time.Since(time.Unix(0, next.Renewed)) > next.TTL/2
	return &next
}

// newRecord returns the record in which w holds the lock.
func (a *agent) newRecord(w *waiter, now time.Time) *record {
	next := &record{
		Lease: nuid.Next(), Instance: a.locker.store.Instance, TTL: w.TTL, Member: a.locker.member, Metadata: w.Metadata,
		Since: now.UnixMilli(),
	}
	if w.force && a.rec != nil {
		next.Stolen = a.rec.Instance
	}
	return next
}

// storedFor returns the time for which the server keeps the record of a lock with a lease of ttl. The lease ends long before: waiters
// compute its end themselves.
func storedFor(ttl time.Duration) time.Duration { return min(max(2*ttl, time.Minute), kv.MaxTTL) }
