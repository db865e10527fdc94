package flight

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/internal/shown"
)

// EventKind is the kind of an event. It serves as the name of a counter, of a log line, of an event in a trace.
type EventKind string

// The events that Config.Observe receives.
const (
	// EventAcquired: a claim was taken, by Begin, Resume or Do.
	EventAcquired EventKind = "acquired"
	// EventHeld: a claim was refused, because Claim is held by Owner.
	EventHeld EventKind = "held"
	// EventReleased: the holder ended its claim after Elapsed. State is Done, Failed with a FailedError in Err, Pending after a hand-off, or
	// Absent after a release.
	EventReleased EventKind = "released"
	// EventLost: the holder found that another process has its claim, or that no renewal was acknowledged in time.
	EventLost EventKind = "lost"
	// EventRenewalFailed: a renewal was not acknowledged, for the reason in Err, and is sent again.
	EventRenewalFailed EventKind = "renewal failed"
	// EventTakeOver: a waiter took the claim of Owner, which died, as Attempt. The waiter had waited for Elapsed.
	EventTakeOver EventKind = "take-over"

	// EventWaiting: a call begins to wait for Claim, held by Owner. Claim is empty when it is not known yet.
	EventWaiting EventKind = "waiting"
	// EventCoalesced: after Elapsed a wait ended with the value that Owner computed under Claim, or with its failure in
	// Err.
	EventCoalesced EventKind = "coalesced"
	// EventWaitTimeout: a caller gave up after Elapsed, for the reason in Err. The computation goes on for other
	// callers.
	EventWaitTimeout EventKind = "wait timeout"
	// EventReturned: a call of Do ended after Elapsed, with Outcome, or with Err.
	EventReturned EventKind = "returned"

	// EventPanic: the function of Do panicked; Err is the PanicError.
	EventPanic EventKind = "panic"
	// EventCorrupt: a record that cannot be read was removed. Err has the reason.
	EventCorrupt EventKind = "corrupt"
)

// Event is an event of a key. Fields without a meaning for its kind are zero.
//
// Claim is the same in the events of a waiter and in those of the owner, in all processes. A tracer can store the span of EventAcquired
// under Claim, and link the span of EventWaiting or EventCoalesced to it.
type Event struct {
	Kind    EventKind
	Key     string
	Claim   string        // the id of the claim
	Owner   string        // the instance that holds or held the claim
	Outcome Outcome       // how Do obtained its value
	State   State         // of the key, now
	Attempt int           // of the claim, from 1
	Elapsed time.Duration // the duration of the work or wait that ended with this event
	Err     error
}

// emit counts an event, and passes it to the observer, if there is one. The caller holds no mutex.
func (f *Flight) emit(ctx context.Context, e Event) {
	switch e.Kind {
	case EventTakeOver:
		f.counts.takeOvers.Add(1)
	case EventWaiting:
		f.counts.waits.Add(1)
	default: // is not counted
	}
	if f.cfg.Observe != nil {
		defer shown.Catch(f.store.Log, "Observe")
		f.cfg.Observe(ctx, e)
	}
}

// event returns the event about an entry that another process holds or wrote.
func (s Entry) event(kind EventKind) Event {
	return Event{Kind: kind, Key: s.Key, Claim: s.Claim, Owner: s.Owner, Attempt: s.Attempt}
}

// publish emits an event of the claim.
func (c *Claim) publish(ctx context.Context, kind EventKind, err error) {
	c.mu.Lock()
	attempt := c.record.Attempt
	c.mu.Unlock()
	e := Event{Kind: kind, Key: c.key, Claim: c.id, Owner: c.flight.store.Instance, Attempt: attempt, Err: err}
	if kind != EventAcquired {
		e.Elapsed = time.Since(c.taken)
	}
	c.flight.emit(ctx, e)
}

// tellLost emits EventLost, once.
func (c *Claim) tellLost(ctx context.Context, err error) {
	if !c.lost.Swap(true) {
		c.publish(ctx, EventLost, err)
	}
}

// tellReleased emits EventReleased with the state in entry, in which the holder left the key.
func (c *Claim) tellReleased(ctx context.Context, entry Entry) {
	if c.flight.cfg.Observe == nil {
		return
	}
	e := Event{
		Kind: EventReleased, Key: c.key, Claim: c.id, Owner: c.flight.store.Instance, State: entry.State, Attempt: entry.Attempt,
		Elapsed: time.Since(c.taken),
	}
	switch {
	case entry.released:
		e.State = Absent
	case entry.State == Failed:
		e.Err = &FailedError{Key: c.key, Reason: entry.Reason, Owner: e.Owner}
	}
	c.flight.emit(ctx, e)
}

// Stats counts the work of a [Flight] since it was made.
type Stats struct {
	// Reads of keys, by Get and GetMany, and by Do before it computes anything.
	Memory MemoryStats // reads that cost no round trip
	Hits   uint64      // found in the bucket
	Misses uint64      // absent or pending

	// Calls of Do, except those that memory answered.
	Cached    uint64
	Coalesced uint64
	Computed  uint64
	Errors    uint64 // that returned an error

	TakeOvers uint64 // claims taken from an owner that died
	Waits     uint64 // for a computation, in this process or another
}

// MemoryStats has the size of a Flight's memory, and counts its work.
type MemoryStats struct {
	Bytes   int64 // held now: keys, values, and overhead
	Entries int64 // held now; some may have expired

	Flushes uint64 // of everything, because changes of the bucket were not pushed
	Hits    uint64 // reads that cost no round trip
	Refused uint64 // answers that were not kept, because a change might have overtaken them
}

// Stats returns the counts since the Flight was made. No round trip.
func (f *Flight) Stats() Stats {
	c := &f.counts
	return Stats{
		Hits: c.hits.Load(), Misses: c.misses.Load(),
		Cached: c.outcomes[Cached].Load(), Coalesced: c.outcomes[Coalesced].Load(), Computed: c.outcomes[Computed].Load(),
		Errors: c.errors.Load(), Memory: f.memory.counts(), TakeOvers: c.takeOvers.Load(), Waits: c.waits.Load(),
	}
}

// counters are the counts that Stats sums up.
type counters struct {
	errors, hits, misses, takeOvers, waits atomic.Uint64

	outcomes [4]atomic.Uint64 // by Outcome
}

// read counts an entry that was read from the bucket.
func (c *counters) read(entry Entry) {
	if entry.State == Done || entry.State == Failed {
		c.hits.Add(1)
	} else {
		c.misses.Add(1)
	}
}

// returned counts a result or an error that Do returned. Answers from memory are counted by the memory, for each core separately.
func (c *counters) returned(r *Result, err error) {
	switch {
	case err != nil:
		c.errors.Add(1)
	case !r.Memory:
		c.outcomes[r.Outcome].Add(1)
	}
}
