package kvlock

import (
	"context"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/lock"
)

// EventKind names what happened: it serves as the name of a counter, of a log line, of an event in a trace.
type EventKind string

// The events that LockerConfig.Observe receives.
const (
	// EventAcquired: a lock was taken.
	EventAcquired = EventKind(lock.Acquired)
	// EventHeld: a lock was refused, because Holder holds it with Lease.
	EventHeld = EventKind(lock.Held)
	// EventReleased: the holder released the lock after Elapsed.
	EventReleased = EventKind(lock.Released)
	// EventLost: the holder found that another instance has the lock, or that no renewal was acknowledged in time.
	EventLost = EventKind(lock.Lost)
	// EventRenewalFailed: a renewal was not acknowledged and is sent again; Err says why.
	EventRenewalFailed = EventKind(lock.RenewalFailed)
	// EventTakeOver: a waiter took the lock of Holder, which died; it had waited for Elapsed.
	EventTakeOver = EventKind(lock.TakeOver)
	// EventWaiting: a call begins to wait for Lease, held by Holder.
	EventWaiting = EventKind(lock.Waiting)
	// EventWaitTimeout: a caller gave up after Elapsed, for the reason in Err.
	EventWaitTimeout = EventKind(lock.WaitTimeout)
	// EventCorrupt: a record that cannot be read was removed; Err says what is wrong with it.
	EventCorrupt = EventKind(lock.Corrupt)
)

// Event is one thing that happened to a lock. Fields that mean nothing for its kind are zero.
type Event struct {
	Kind    EventKind
	Name    string        // of the lock
	Lease   string        // the id of the lease
	Holder  string        // the instance that holds or held it
	Elapsed time.Duration // how long that took which ended with this event
	Err     error
}

// observer adapts the function of a configuration; nil stays nil.
func observer(observe func(context.Context, Event)) func(context.Context, lock.Event) {
	if observe == nil {
		return nil
	}
	return func(ctx context.Context, e lock.Event) {
		observe(ctx, Event{Kind: EventKind(e.Kind), Name: e.Name, Lease: e.Lease, Holder: e.Holder, Elapsed: e.Elapsed, Err: e.Err})
	}
}
