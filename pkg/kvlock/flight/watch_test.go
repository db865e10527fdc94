package flight

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// A watcher returns the latest slot of each key once, in the order in which the keys first changed.
func TestWatcherCoalesces(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, []string{"a", "b"}, nil)
	slot := func(key string, revision uint64, state State) *Slot {
		return &Slot{Key: key, Revision: revision, State: state}
	}
	w.deliver(slot("a", 1, Pending), true)
	w.deliver(slot("b", 2, Pending), true)
	w.deliver(slot("a", 3, Done), false)
	w.deliver(slot("a", 1, Pending), true) // late
	for _, want := range []*Slot{slot("a", 3, Done), slot("b", 2, Pending)} {
		got, ok := takenBy(w)
		if !ok || got.Key != want.Key || got.Revision != want.Revision {
			t.Errorf("got %+v, %v; want %+v", got, ok, want)
		}
	}
	if got, ok := takenBy(w); ok {
		t.Errorf("got %+v after all was told", got)
	}
}

func TestWatcherThatKnowsNothingIsToldWhatWasReadForIt(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, []string{"a"}, nil)
	w.deliver(&Slot{Key: "a", Revision: 1, State: Done}, false)
	if got, ok := takenBy(w); ok {
		t.Errorf("was told %+v, which others knew before it came", got)
	}
	w.deliver(&Slot{Key: "a", Revision: 2, State: Pending}, true)
	w.deliver(&Slot{Key: "a", Revision: 3, State: Done}, false)
	if got, ok := takenBy(w); !ok || got.Revision != 3 {
		t.Errorf("got %+v, %v; want revision 3", got, ok)
	}
}

func TestWatcherIsNotToldThatAMarkerHasGone(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, []string{"a"}, nil)
	w.deliver(&Slot{Key: "a", Revision: 4, State: Failed, marker: true, Claim: "c"}, true)
	if got, ok := takenBy(w); !ok || !got.past {
		t.Errorf("got %+v, %v; want a failure that is past", got, ok)
	}
	w.deliver(&Slot{Key: "a"}, false)
	if got, ok := takenBy(w); ok {
		t.Errorf("was told %+v", got)
	}
	w.deliver(&Slot{Key: "a", Revision: 5, State: Pending, Claim: "d"}, false)
	w.deliver(&Slot{Key: "a", Revision: 6, State: Failed, marker: true, Claim: "d"}, false)
	if got, ok := takenBy(w); !ok || got.past || got.Revision != 6 {
		t.Errorf("got %+v, %v; want the failure of the claim that was watched", got, ok)
	}
}

// What wakes a computation while it looks makes it look again.
func TestWakeWhileRunning(t *testing.T) {
	t.Parallel()
	c := &call{}
	c.state.Store(running)
	c.wake()
	if c.rests() {
		t.Error("it rests, and does not know what woke it")
	}
	c.state.Store(running)
	if !c.rests() {
		t.Error("it does not rest though nothing woke it")
	}
}

func takenBy(w *Watcher) (slot Slot, ok bool) {
	news := w.take()
	if news == nil {
		return Slot{}, false
	}
	return *news, true
}

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
