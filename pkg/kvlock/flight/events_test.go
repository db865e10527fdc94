package flight

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without an observer events cost nothing. It is not parallel: what others allocate would count.
func TestNoObserverCostsNothing(t *testing.T) {
	f := &Flight{store: &kv.Store{Instance: "i"}}
	claim := &Claim{flight: f, id: "c", key: "k", taken: time.Now()}
	slot := Slot{Key: "k", State: Failed, Claim: "c", Owner: "o", Reason: "r"}
	err := &FailedError{Key: "k"}
	n := testing.AllocsPerRun(1000, func() {
		ctx := t.Context()
		f.emit(ctx, Event{Kind: EventReturned, Key: "k", Claim: "c", Owner: "o", Outcome: Cached, Elapsed: 1, Err: err})
		f.emit(ctx, slot.event(EventWaiting))
		claim.tell(ctx, EventAcquired, err)
		claim.tellReleased(ctx, slot)
	})
	if n != 0 {
		t.Errorf("%.1f allocations", n)
	}
}
