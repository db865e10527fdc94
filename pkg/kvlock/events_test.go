package kvlock

import (
	"testing"
	"time"
)

// Who observes nothing pays nothing. It is not parallel: what others allocate would count.
func TestNoObserverCostsNothing(t *testing.T) {
	s := &store{instance: "i"}
	claim := &Claim{flight: &Flight{store: s}, id: "c", key: "k", taken: time.Now()}
	slot := Slot{Key: "k", State: Failed, Claim: "c", Owner: "o", Reason: "r"}
	err := &FailedError{Key: "k"}
	n := testing.AllocsPerRun(1000, func() {
		ctx := t.Context()
		s.emit(ctx, Event{Kind: EventReturned, Key: "k", Claim: "c", Owner: "o", Outcome: Cached, Elapsed: 1, Err: err})
		s.emit(ctx, slot.event(EventWaiting))
		claim.tell(ctx, EventAcquired, err)
		claim.tellReleased(ctx, slot)
	})
	if n != 0 {
		t.Errorf("%.1f allocations", n)
	}
}
