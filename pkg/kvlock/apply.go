package kvlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// apply applies the outcome of a write.
func (a *agent) apply(t *transaction, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var conflict *kv.ConflictError
	switch {
	case err == nil:
		a.looked, a.failure, a.tries = t.began, nil, 0
		if t.next == nil || !t.next.Granted || t.next.Member != a.locker.member {
			a.lastWrite = lastWrite{sent: t.began, at: t.revision}
		}
		a.acknowledged(t)
	case errors.As(err, &conflict):
		a.looked, a.failure = t.began, nil
		t.found.revision = conflict.Revision
		a.found(t.found, t.change.Expect)
		a.tries++
		if a.tries > 1 && !t.mine {
			a.rest = time.Now().Add(rand.N(min(minContention<<min(a.tries, 10), maxContention)))
		}
	default:
		a.failed(err)
	}
}

// lookAt reads the record, last known at revision at, from the stream's leader.
func (a *agent) lookAt(at uint64) {
	began := time.Now()
	s, err := a.locker.ask(context.Background(), a.key) //nolint:forbidigo // bound by the store
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed(err)
		return
	}
	a.looked = began
	a.found(s, at)
}

// probeAll finds out which members before this one are gone, for the lease in the record.
func (a *agent) probeAll(lease string, before []string) {
	gone := a.locker.liveness.Gone(a.locker.store.Closing, before)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rec != nil && a.rec.Lease == lease {
		a.observed.probed, a.observed.gone = true, gone
	}
}

// failed records an error that does not tell the state of the record. If another try cannot help, it ends all waits.
func (a *agent) failed(err error) {
	a.failure = err
	a.rest = time.Now().Add(kv.RetryWait)
	if jsapi.IsPermanent(err) || !errors.Is(err, ErrUnavailable) {
		a.endAll(err)
		if a.lease != nil && a.lease.releasing {
			a.end(a.lease, err)
		}
	}
}

// acknowledged applies an acknowledged write.
func (a *agent) acknowledged(t *transaction) {
	if t.revision > a.at || t.change.Expect == a.at {
		if !t.next.sameLease(a.rec) {
			a.observed = newObservedLease(t.next, time.Now())
		}
		a.at, a.created, a.rec = t.revision, time.Time{}, t.next
		a.held = t.began.Add(t.change.TTL - time.Second)
	}
	if t.lease != nil && t.lease == a.lease {
		switch {
		case t.next != nil && t.next.Lease == t.lease.id:
			t.lease.extend(t.began)
		case t.lease.releasing:
			a.end(t.lease, nil)
		default:
			a.lose(t.lease, fmt.Errorf("%w: lock %q was taken by force in this process", ErrLost, a.name))
		}
	}
	if t.taker == nil || t.taker.gone() || a.rec == nil || a.rec.Lease != t.next.Lease {
		return // the next read of the record decides
	}
	a.deliver(t)
}

// found applies the leader's answer about the record, to a write or a read that began when revision at was known. The answer counts even
// if it is older than at, unless a push arrived meanwhile: a newer revision may already have this member as the holder.
func (a *agent) found(s state, at uint64) { a.learn(s, a.at == at) }

// learn applies a state of the record from a read, a push or a refused write. A state older than the last known one
// counts only with force.
func (a *agent) learn(s state, force bool) {
	if s.err != nil {
		a.endAll(s.err)
		return
	}
	a.stale = a.stale && !force
	switch {
	case s.revision == a.at && s.revision != 0 && s.record.sameLease(a.rec):
		if a.created.IsZero() {
			a.created = s.created
			a.observed.shorten(a.rec, s)
		}
		if force {
			a.generation = a.locker.store.Generation()
		}
		return
	case !force && a.older(s):
		return
	}
	switch {
	case s.revision == 0 && !a.isMine(): // nobody released it: its holder may still have it
	case s.record == nil, !s.record.sameLease(a.rec):
		a.observed = newObservedLease(s.record, s.seen)
	}
	a.at, a.generation, a.created, a.rec, a.held = s.revision, a.locker.store.Generation(), s.created, s.record, time.Time{}
	a.observed.shorten(a.rec, s)
	if l := a.lease; l != nil && (a.rec == nil || a.rec.Lease != l.id) {
		if l.releasing {
			a.end(l, nil)
		} else {
			a.lose(l, a.loss())
		}
	}
	a.accept(s.seen)
}

// accept gives a lock that was handed to this member to the first waiter, without a write, if the lease holds for long enough to be
// confirmed. The lease begins with a write of ours that is older than the hand-over: see rule 4. The generation in its token has to be
// known.
func (a *agent) accept(now time.Time) {
	if a.inLine || a.lease != nil || a.closing != nil || !a.isMine() || !a.rec.Granted || a.waiters.Len() == 0 ||
		a.acceptedGrant == a.rec.Lease {
		return
	}
	until := kv.Deadline(a.lastWrite.sent, grantTTL)
	if a.lastWrite.at == 0 || a.lastWrite.at >= a.rec.takenAt(a.at) || until.Sub(now) < acceptFor || !a.locker.isFresh() {
		return
	}
	a.acceptedGrant = a.rec.Lease
	w := front(&a.waiters)
	a.hand(w, &Lease{
		id: a.rec.Lease, ttl: w.TTL, deadline: until, renewAt: now.Add(confirmAfter),
		token: Token{Epoch: a.generation, Revision: a.rec.takenAt(a.at)},
	})
}

// older reports whether s is not later than the last known state. A state of a seemingly new bucket, or a record that is missing too
// early, does not count either, but makes the agent ask the server. With a lease in hand it renews the lease, which proves more than a
// read.
func (a *agent) older(s state) bool {
	switch {
	case s.revision > a.at:
		return false
	case s.revision == a.at: // another record with the same revision
	case s.revision == 0 && a.lease == nil && !time.Now().Before(a.held):
		return false
	case s.revision != 0 && (a.created.IsZero() || !s.created.After(a.created)):
		return true
	}
	if a.lease != nil {
		a.lease.renewAt = time.Time{}
	} else {
		a.stale = true
	}
	return true
}

// remade ends a lease that was taken in a former generation of the bucket.
func (a *agent) remade() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.lease; l != nil && !l.releasing && l.token.Epoch < a.locker.store.Generation() {
		a.lose(l, fmt.Errorf("%w: the bucket of lock %q was made anew, or marked as restored", ErrLost, a.name))
	}
	a.stale = true
	a.start()
}

func (a *agent) loss() error {
	if a.rec == nil {
		return fmt.Errorf("%w: lock %q was removed, or has expired", ErrLost, a.name)
	}
	how := "was taken over"
	if a.rec.Stolen != "" {
		how = "was taken by force"
	}
	return fmt.Errorf("%w: lock %q %s by %s", ErrLost, a.name, how, a.rec.Instance)
}

func newObservedLease(rec *record, seen time.Time) observedLease {
	if rec == nil {
		return observedLease{}
	}
	return observedLease{expiresAt: seen.Add(rec.TTL)}
}

// shorten ends a lease earlier by the server's own times: by the time between the last renewal in the record and the storing of s. The
// margin is for differences between the clocks of servers. A clock may also have been set, by hours, so shorten counts only where the
// holder was asked for a renewal, and has had the time to renew.
func (o *observedLease) shorten(rec *record, s state) {
	if rec == nil || rec.Renewed == 0 || !rec.Asked {
		return
	}
	if o.probedAt.IsZero() {
		o.probedAt = s.seen
	}
	age := time.Duration(s.created.UnixNano() - rec.Renewed)
	expiresAt := s.seen.Add(rec.TTL + skew(rec.TTL) - age)
	if answered := o.probedAt.Add(answerTime); expiresAt.Before(answered) {
		expiresAt = answered
	}
	if expiresAt.Before(o.expiresAt) {
		o.expiresAt = expiresAt
	}
}

// skew returns the largest expected difference between the clocks of servers.
func skew(ttl time.Duration) time.Duration { return time.Second + ttl/4 }

// deliver gives the new lease to its waiter.
func (a *agent) deliver(t *transaction) {
	until := kv.Deadline(t.began, t.next.TTL)
	if !time.Now().Before(until) {
		return // the acknowledgement came too late
	}
	a.hand(t.taker, &Lease{
		id: t.next.Lease, ttl: t.next.TTL, deadline: until, renewAt: t.began.Add(t.next.TTL / 3),
		token: Token{Epoch: a.generation, Revision: t.revision},
	})
}

// hand gives a lease to a waiter.
func (a *agent) hand(w *waiter, l *Lease) {
	l.agent, l.metadata, l.taken, l.done = a, w.Metadata, time.Now(), make(chan struct{})
	l.ctx, l.cancel = context.WithCancelCause(w.values)
	l.timer = time.AfterFunc(time.Until(l.deadline), l.expire)
	a.lease = l
	a.finish(w, l, nil)
}

// finish ends a wait.
func (a *agent) finish(w *waiter, l *Lease, err error) {
	w.list.Remove(w.element)
	w.list = nil
	w.lease, w.err = l, err
	close(w.done)
}

// endAll ends all waits.
func (a *agent) endAll(err error) {
	for w := a.next(); w != nil; w = a.next() {
		a.finish(w, nil, err)
	}
}

// lose ends a lease that this member lost.
func (a *agent) lose(l *Lease, cause error) {
	l.cancel(cause)
	a.end(l, cause)
}

// end ends the lease in hand. Release returns err.
func (a *agent) end(l *Lease, err error) {
	l.timer.Stop()
	l.err = err
	close(l.done)
	a.lease, a.used = nil, time.Now()
}

// abandon ends an agent whose lock could not be followed.
func (a *agent) abandon(err error) {
	a.mu.Lock()
	a.endAll(err)
	a.working = false
	a.mu.Unlock()
	a.locker.rest(a)
}

// shut ends the use of the lock. The agent's goroutine then releases the lease.
func (a *agent) shut(cause error, by time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closing, a.closeBy = cause, by
	a.endAll(cause)
	if l := a.lease; l != nil && !l.releasing {
		l.release(cause)
	}
	a.start()
}

// isIdle reports whether the agent is unused.
func (a *agent) isIdle() bool {
	return !a.working && a.lease == nil && a.waiters.Len() == 0 && a.others.Len() == 0
}

// giveUp ends a wait whose caller leaves, and reports whether it did: the wait may have ended already.
func (a *agent) giveUp(w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.gone() {
		return false
	}
	a.finish(w, nil, nil)
	a.used = time.Now()
	a.start()
	return true
}

// unanswered returns the reason that no server answered since the waiter came; nil if one did.
func (a *agent) unanswered(w *waiter) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	placed := a.rec != nil && a.queue().fits(a.locker.member, a.waiters.Len())
	if !w.now && (a.lease != nil || placed || !a.looked.Before(w.came)) {
		return nil
	}
	return a.silence(w)
}

// silence returns the error for a waiter that no server has answered. The caller holds mu.
func (a *agent) silence(w *waiter) error {
	if errors.Is(a.failure, ErrUnavailable) {
		return a.failure
	}
	return fmt.Errorf("%w: no answer within %s", ErrUnavailable, time.Since(w.came).Round(time.Millisecond))
}

// overdue returns the error for a waiter whose time is over: another member holds the lock, or the bucket has not answered since the
// waiter came.
func (a *agent) overdue(w *waiter) error {
	heard := a.locker.store.Hub.Silence() < time.Since(w.came)
	a.mu.Lock()
	defer a.mu.Unlock()
	if heard || a.lease != nil || !a.looked.Before(w.came) {
		return a.heldError()
	}
	return a.silence(w)
}

// heldError returns the error for a caller that wanted the lock while another member holds it. The caller holds mu.
func (a *agent) heldError() error {
	return &HeldError{Lock: a.locker.show(state{name: a.name, revision: a.at, created: a.created, record: a.rec})}
}
