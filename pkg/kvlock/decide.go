package kvlock

import (
	"cmp"
	"container/list"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// situation is what one member knows about a lock, and what its callers want of it: all that decide reads.
type situation struct {
	member string // the name of this member in records

	// The record as last read, pushed or written.
	at         uint64    // its revision; before the first record, the last revision of an earlier agent
	generation uint64    // the generation of the bucket in which at is a revision
	created    time.Time // when the server stored it; zero when that is unknown
	rec        *record   // nil while the lock is free, or nothing is known
	observed   observedLease
	held       time.Time // until then revision at, if it was acknowledged to this member, cannot have expired
	looked     time.Time // when the last answered read or write of the record began
	stale      bool      // the record may be another, older than the last known

	// Callers, and the lease that one of them has.
	lease        *Lease    // the one in hand
	waiters      list.List // of *waiter: those that wait for their turn
	others       list.List // of *waiter: those that want the lock now or not at all, or by force
	taker        *waiter   // the one for which this member last tried to take the lock
	pendingLease string    // with which lease

	// Pauses, and the end.
	failure   error     // the error of the last write, unless another member wrote
	notBefore time.Time // the time of the next request that is not about a lock that this member has
	closing   error     // the reason that no waiter gets the lock any more
	closeBy   time.Time // when the attempts to give the lock back end
}

// observedLease is how long members that do not hold it leave the lease in a record alone.
type observedLease struct {
	askedAt   time.Time // when this process first saw that the holder was asked for a renewal
	expiresAt time.Time

	probed bool     // the members before this one were probed after that
	gone   []string // those of them that are gone
}

func newObservedLease(rec *record, seen time.Time) observedLease {
	if rec == nil {
		return observedLease{}
	}
	return observedLease{expiresAt: seen.Add(rec.TTL)}
}

// shorten ends a lease earlier by the server's own times: by the time between the last renewal in the record and the storing of s.
func (o *observedLease) shorten(rec *record, s state) {
	// A server's clock may have been set, by hours. So its times count only after the holder was asked for a renewal, and had
	// the time to answer: a live holder has then renewed.
	if rec == nil || rec.Renewed == 0 || !rec.Asked {
		return
	}
	if o.askedAt.IsZero() {
		o.askedAt = s.seen
	}
	age := time.Duration(s.created.UnixNano() - rec.Renewed)
	expiresAt := s.seen.Add(rec.TTL + skew(rec.TTL) - age)
	if answered := o.askedAt.Add(answerTime); expiresAt.Before(answered) {
		expiresAt = answered
	}
	if expiresAt.Before(o.expiresAt) {
		o.expiresAt = expiresAt
	}
}

// skew returns the largest expected difference between the clocks of servers.
func skew(ttl time.Duration) time.Duration { return time.Second + ttl/4 }

// action is what an agent does next.
type action uint8

const (
	nothing action = iota

	// These need no request.
	surrender // stop the attempts to give the lease in hand back
	forget    // forget a record of this member that the server may have removed
	refuse    // refuse the callers that do not wait

	// These read.
	look  // read the record, for a caller that does not wait
	probe // probe the members before this one

	// These write the record.
	take    // take the lock, for a waiter
	renew   // renew the lease in hand
	pass    // pass the lock on to the next in the queue, or release it
	queueUp // take or leave places in the queue
	touch   // learn the server's time by a write
)

// step is an action, or nothing until a time.
type step struct {
	do     action
	waiter *waiter   // the caller for which take or touch is done
	own    bool      // it is about a lock that this member has: other members' writes do not delay it
	when   time.Time // when to decide again if nothing is done; zero for the next push or answer
}

// decide returns the step that is due now. It reads the situation and the time, and changes nothing.
func (s *situation) decide(now time.Time) step {
	next := s.due(now)
	// After a refusal another request would only add to the contention, and after a failure to the load of a server that does
	// not answer. What concerns a lock in hand waits for failures only: nobody else can write it for long.
	if next.do < look || !now.Before(s.notBefore) || next.own && s.failure == nil {
		return next
	}
	if next.when.IsZero() || s.notBefore.Before(next.when) {
		next.when = s.notBefore
	}
	return step{when: next.when}
}

// due is decide as if there were no pauses.
func (s *situation) due(now time.Time) step {
	if s.closing != nil && !now.Before(s.closeBy) {
		if s.lease != nil {
			return step{do: surrender}
		}
		return step{} // a lock that was not given back is free when its TTL has passed
	}
	mine := s.isMine()
	// Without a lease in hand nobody renews the record. From here on the server may have removed it, and another member may
	// have the lock.
	if mine && s.lease == nil && !s.held.IsZero() && now.After(s.held) {
		return step{do: forget}
	}
	// Force comes before a lease in hand: another caller of this process may have that one.
	for w := range callers(&s.others) {
		if w.force {
			return step{do: take, waiter: w}
		}
	}
	next := cmp.Or(front(&s.waiters), front(&s.others))
	switch {
	case s.lease != nil:
		return s.dueInHand(now)
	case s.stale && next != nil:
		return step{do: look}
	case mine:
		return s.dueMine()
	case s.rec != nil:
		return s.dueWaiting(now, next)
	case now.Before(s.observed.expiresAt): // the record is gone, but nobody released the lock: its holder may still have it
		if s.others.Len() > 0 {
			return step{do: refuse}
		}
		return step{when: s.observed.expiresAt}
	case next != nil:
		return step{do: take, waiter: next}
	default:
		return step{}
	}
}

// dueInHand is due while a lease is in hand.
func (s *situation) dueInHand(now time.Time) step {
	switch l := s.lease; {
	case s.others.Len() > 0:
		return step{do: refuse}
	case l.releasing:
		return step{do: pass, own: true}
	case !now.Before(l.renewAt) || s.rec != nil && s.rec.Asked:
		return step{do: renew, own: true}
	case !s.isQueued():
		return step{do: queueUp, when: l.renewAt} // the renewal does the same, if the queue has to wait for that long
	default:
		return step{when: l.renewAt}
	}
}

// dueMine is due when this member has the lock without a lease in hand: the lock was handed over, or the outcome of a write is
// unknown, or came too late.
func (s *situation) dueMine() step {
	switch {
	case s.rec.Granted && s.waiters.Len() > 0:
		return step{do: take, waiter: front(&s.waiters), own: true}
	case s.pendingLease == s.rec.Lease && s.taker.list != nil: // our write, after all: the lock is for the waiter that it was sent for
		return step{do: take, waiter: s.taker, own: true}
	default:
		return step{do: pass, own: true}
	}
}

// dueWaiting is due while another member holds the lock, and next is the first caller here.
func (s *situation) dueWaiting(now time.Time, next *waiter) step {
	var until time.Time
	if next != nil {
		until = s.observed.expiresAt
		if !now.Before(until) {
			// All waiters see the end of the lease at the same time. Each leaves those before it in the queue a moment, so that
			// one of them writes, and not all. Members that are found to be gone get none.
			before := len(s.before())
			if before > 0 && !s.observed.probed {
				return step{do: probe}
			}
			until = until.Add(time.Duration(before-len(s.observed.gone)) * takeOverStep)
		}
		if !now.Before(until) {
			return step{do: take, waiter: next}
		}
	}
	if s.others.Len() > 0 {
		doubter := s.doubter(now)
		switch {
		case s.lookDue(): // a refusal has to name the present holder
			return step{do: look}
		case doubter != nil:
			return step{do: touch, waiter: doubter}
		case s.rec.Asked && s.observed.expiresAt.Sub(now) <= answerTime: // the holder may answer, or be found dead
			return step{when: until}
		}
		return step{do: refuse}
	}
	if s.isQueued() {
		return step{when: until}
	}
	return step{do: queueUp}
}

// isMine reports whether the record has this member as the holder.
func (s *situation) isMine() bool { return s.rec != nil && s.rec.Member == s.member }

// isQueued reports whether the queue in the record has the places that this member's waiters need, or has no room for them.
func (s *situation) isQueued() bool {
	var q queue
	if s.rec != nil {
		q = s.rec.queue
	}
	return q.missing(s.member, s.waiters.Len()) == 0
}

// before returns the members that may take the lock of a dead holder before this one, the last first.
func (s *situation) before() []string {
	members := s.rec.queue.without(s.rec.Member).before(s.member)
	slices.Reverse(members)
	return members
}

// doubter returns a caller that does not wait, if by this process's clock the lock was not renewed for longer than its TTL. A write can
// prove that, by the server's time. Each of these callers causes one write.
func (s *situation) doubter(now time.Time) *waiter {
	renewed := s.created // by the server's clock
	if s.rec.Renewed != 0 {
		renewed = time.Unix(0, s.rec.Renewed)
	}
	if now.Sub(renewed) <= s.rec.TTL+skew(s.rec.TTL) {
		return nil
	}
	for w := range callers(&s.others) {
		if !w.touched {
			return w
		}
	}
	return nil
}

// lookDue reports whether the record has to be read: for a caller that does not wait and came after the last read, or to learn the
// server's time of a write.
func (s *situation) lookDue() bool {
	if s.created.IsZero() {
		return true
	}
	for w := range callers(&s.others) {
		if w.came.After(s.looked) {
			return true
		}
	}
	return false
}

// front returns the first caller in a list, nil when it is empty.
func front(of *list.List) *waiter {
	if e := of.Front(); e != nil {
		return e.Value.(*waiter) //nolint:forcetypeassert // only waiters are in it
	}
	return nil
}

// callers yields the callers in a list. The loop must not remove them.
func callers(of *list.List) iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for e := of.Front(); e != nil; e = e.Next() {
			if !yield(e.Value.(*waiter)) { //nolint:forcetypeassert // only waiters are in it
				return
			}
		}
	}
}

// transaction is a write whose outcome is not known yet.
type transaction struct {
	// Set by compose.
	agent  *agent
	change kv.Change
	next   *record // nil: the lock is free
	taker  *waiter // the waiter that gets the lease if the write is ours
	lease  *Lease  // the lease in hand when the write was computed
	mine   bool    // the replaced record was this member's
	owner  string  // unique for this write
	pushes bool    // a push may prove the outcome

	// Set by the goroutine that sends it.
	began    time.Time // when it was first sent: a lease counts from then
	read     state     // the state of the lock, read when the write was not acknowledged
	revision uint64
	err      error // why it was not made, or could not be composed
}

// Judge compares the lock's record with the record that this transaction wrote, for the store.
func (t *transaction) Judge(ctx context.Context, e kv.Entry) kv.Verdict {
	t.read = t.agent.locker.state(ctx, e)
	return t.verdict()
}

// Pushed is Judge of the last state that was pushed.
func (t *transaction) Pushed() kv.Verdict {
	if !t.pushes {
		return kv.Verdict{}
	}
	t.agent.mu.Lock()
	pushed := t.agent.pushed
	t.agent.mu.Unlock()
	if pushed.revision <= t.change.Expect {
		return kv.Verdict{}
	}
	t.read = pushed
	return t.verdict()
}

func (t *transaction) verdict() kv.Verdict {
	r := t.read.record
	return kv.Verdict{Revision: t.read.revision, Ours: r != nil && r.writer != "" && r.writer == t.owner, Err: t.read.err}
}

// compose computes the write for a step. Each write also gives this member the places in the queue that its waiters need.
func (a *agent) compose(next step, now time.Time) *transaction {
	m, w := a.locker, next.waiter
	t := &transaction{agent: a, lease: a.lease, mine: a.isMine()}
	var q queue
	if a.rec != nil {
		q = a.rec.queue
	}
	switch next.do {
	case take:
		if a.rec != nil && !t.mine {
			// By force the queue stays as it is. Otherwise the holder is dead, and so are those before this member that probes did not reach.
			if !w.force {
				q = q.without(append(slices.Clip(a.observed.gone), a.rec.Member)...)
			}
			if w.list == &a.waiters {
				q = q.leave(m.member)
			}
		}
		t.next, t.taker = a.newRecord(w, now), w
	case pass:
		// Before the hand-over: this process has its turn like others.
		q = q.fit(m.member, m.store.Instance, a.waiters.Len())
		if len(q) > 0 {
			q = a.handOver(t, q, now)
		}
	default: // renew, queueUp, touch
		if w != nil {
			w.touched = true
		}
		t.next = a.sameHolder()
	}
	t.change = kv.Change{
		Key: a.key, Expect: a.at, Held: a.held, Writer: t, Generation: a.generation,
		Token: t.taker != nil || next.do == queueUp, // a place in the queue may lead to a lease without another write
	}
	t.pushes = a.others.Len() == 0 // a refusal of a caller needs the present state, not a pushed one
	if t.next == nil {
		// The marker outlives the record that it hides: a server that was killed may restore that record when it restarts.
		t.change.Purge, t.change.TTL = true, kv.MarkerTTL(storedFor(m.ttl))
		return t
	}
	// A write that confirms the lease in hand has to leave time for another try.
	if t.mine && a.rec.Granted && t.next.Lease == a.rec.Lease {
		t.change.Within = acceptFor / 2
	}
	places := a.waiters.Len()
	if t.taker != nil {
		// If the outcome stays unknown, the record shows this lease when the write was made: see dueMine.
		a.taker, a.pendingLease = t.taker, t.next.Lease
		if t.taker.list == &a.waiters {
			places-- // it needs no place any more
		}
	}
	t.next.queue = q.fit(m.member, m.store.Instance, places)
	t.owner, t.change.TTL = nuid.Next(), storedFor(t.next.TTL)
	t.next.writer = t.owner
	t.change.Data, t.err = t.next.encode(t.owner)
	m.lastSent.Store(&sentRecord{data: t.change.Data, record: t.next})
	return t
}

// handOver gives the lock to the first in the queue. A waiter of this process gets the lease at once.
func (a *agent) handOver(t *transaction, q queue, now time.Time) queue {
	head := q[0]
	if head.member == a.member {
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
	if l := a.lease; l != nil { // a renewal, which also answers those who asked for it
		next.Renewal++
		next.Renewed, next.Asked = 0, false
		if next.Granted {
			next.Granted, next.Instance, next.TTL, next.Metadata = false, a.locker.store.Instance, l.ttl, l.metadata
			next.Since = l.taken.UnixMilli()
		}
		return &next
	}
	// Others count the lease from the holder's last renewal, so that record keeps its time, whoever writes about the queue.
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
		Lease: nuid.Next(), Instance: a.locker.store.Instance, TTL: w.TTL, Member: a.member, Metadata: w.Metadata,
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
