package kvlock

import (
	"context"
	"time"
)

// EventKind says what an [Event] tells: the name of a counter, of a log line, of an event in a trace.
type EventKind string

// What Config.Observe is told.
const (
	// EventAcquired: a claim was taken, by Begin, Resume or Do.
	EventAcquired EventKind = "acquired"
	// EventHeld: a claim was refused, because Claim is held by Owner.
	EventHeld EventKind = "held"
	// EventReleased: the holder ended its claim after Elapsed. State says how: Done, Failed with a FailedError in Err,
	// Pending when it was handed off, and Absent when it was given back.
	EventReleased EventKind = "released"
	// EventLost: the holder found that its claim is somebody else's, or that nobody acknowledged its renewals in time.
	EventLost EventKind = "lost"
	// EventRenewalFailed: a renewal had no answer and is tried again; Err says why.
	EventRenewalFailed EventKind = "renewal failed"
	// EventTakeOver: a waiter took the claim of Owner, which died, as Attempt; it had waited for Elapsed.
	EventTakeOver EventKind = "take-over"

	// EventWaiting: a call begins to wait for Claim, held by Owner. Claim is empty when it is not known yet.
	EventWaiting EventKind = "waiting"
	// EventCoalesced: after Elapsed a wait ended with what Owner computed under Claim, or with its failure in Err.
	EventCoalesced EventKind = "coalesced"
	// EventWaitTimeout: a caller gave up after Elapsed, for the reason in Err. What it waited for goes on for others.
	EventWaitTimeout EventKind = "wait timeout"
	// EventReturned: a call of Do ended after Elapsed, with Outcome, or with Err.
	EventReturned EventKind = "returned"

	// EventRefresh: a value that is there is computed anew under Claim, in the background.
	EventRefresh EventKind = "refresh"
	// EventStale: a caller gets a value past its TTL, which is Elapsed old.
	EventStale EventKind = "stale"

	// EventPanic: the function of Do panicked; Err is the PanicError.
	EventPanic EventKind = "panic"
	// EventCorrupt: a record that nobody can read was removed; Err says what is wrong with it.
	EventCorrupt EventKind = "corrupt"
)

// Event is one thing that happened to a key. Fields that mean nothing for its kind are zero.
//
// Claim is the same in the event of who waits and in those of who computes, in whatever process: a tracer stores the
// span of EventAcquired under it and links the span of EventWaiting or EventCoalesced to that.
type Event struct {
	Kind    EventKind
	Key     string
	Claim   string        // the id of the claim
	Owner   string        // the instance that holds or held the claim
	Outcome Outcome       // how Do came by its value
	State   State         // what the key became
	Attempt int           // of the claim, from 1
	Elapsed time.Duration // what ended here took so long
	Err     error
}

// emit counts what happened, and tells the observer, if there is one. It is called without a lock held.
func (s *store) emit(ctx context.Context, e Event) {
	s.counts.happened(e.Kind)
	if s.observe != nil {
		s.observe(ctx, e)
	}
}

// event is what is told of a slot that somebody else holds or wrote.
func (s Slot) event(kind EventKind) Event {
	return Event{Kind: kind, Key: s.Key, Claim: s.Claim, Owner: s.Owner, Attempt: s.Attempt}
}

// tell emits an event of the claim.
func (c *Claim) tell(ctx context.Context, kind EventKind, err error) {
	c.mu.Lock()
	attempt := c.record.Attempt
	c.mu.Unlock()
	e := Event{Kind: kind, Key: c.key, Claim: c.id, Owner: c.flight.instance, Attempt: attempt, Err: err}
	if kind != EventAcquired {
		e.Elapsed = time.Since(c.taken)
	}
	c.flight.emit(ctx, e)
}

// tellLost emits that the claim was lost, once.
func (c *Claim) tellLost(ctx context.Context, err error) {
	if !c.lost.Swap(true) {
		c.tell(ctx, EventLost, err)
	}
}

// tellReleased emits how the holder ended the claim, which is in slot now.
func (c *Claim) tellReleased(ctx context.Context, slot Slot) {
	if c.flight.observe == nil {
		return
	}
	e := Event{
		Kind: EventReleased, Key: c.key, Claim: c.id, Owner: c.flight.instance, State: slot.State, Attempt: slot.Attempt,
		Elapsed: time.Since(c.taken),
	}
	failed := &FailedError{Key: c.key, Reason: slot.Reason, Owner: e.Owner}
	switch {
	case slot.State == Done && slot.kept().Tried == c.id: // and the earlier value is back
		e.State, e.Err = Failed, failed
	case slot.released || slot.State == Done && slot.Claim != c.id:
		e.State = Absent
	case slot.NotFound:
		e.State, e.Err = Done, slot.failure()
	case slot.State == Failed:
		e.Err = failed
	}
	c.flight.emit(ctx, e)
}
