package flight

import (
	"testing"
	"time"
)

func TestWhatAMarkerIsToWhom(t *testing.T) {
	t.Parallel()
	failure := Slot{Key: "k", State: Failed, Claim: "c", Reason: "r", Revision: 5, marker: true}
	released := failure
	released.released = true
	kept := failure
	kept.marker = false
	tests := []struct {
		name  string
		slot  Slot
		claim string
		want  State
	}{
		{"failure, to who waited for it", failure, "c", Failed},
		{"failure, to who waited for another", failure, "d", Absent},
		{"failure, to who just came", failure, "", Absent},
		{"given back, to who waited for it", released, "c", Absent},
		{"kept failure, to anybody", kept, "", Failed},
	}
	for _, tt := range tests {
		got := tt.slot.awaited(tt.claim)
		if got.State != tt.want || got.Revision != 5 || got.State == Absent && (got.Reason != "" || got.Claim != "") {
			t.Errorf("%s: got %+v, want %s", tt.name, got, tt.want)
		}
	}
	if got := failure.readable(); got.State != Absent || got.Revision != 5 {
		t.Errorf("read: got %+v, want absent at 5", got)
	}
}

func TestStatesAndOutcomesHaveNames(t *testing.T) {
	t.Parallel()
	for state, want := range map[State]string{Absent: "absent", Pending: "pending", Done: "done", Failed: "failed", 9: "State(9)"} {
		if state.String() != want {
			t.Errorf("got %q, want %q", state, want)
		}
		if state <= Failed && parseState(want) != state {
			t.Errorf("%q is read as %s", want, parseState(want))
		}
	}
	for outcome, want := range map[Outcome]string{Cached: "cached", Computed: "computed", Coalesced: "coalesced", Stale: "stale", 9: "Outcome(9)"} {
		if outcome.String() != want {
			t.Errorf("got %q, want %q", outcome, want)
		}
	}
}

func TestAgeIsNeverNegative(t *testing.T) {
	t.Parallel()
	if got := (Slot{Created: time.Now().Add(time.Hour)}).Age(); got != 0 {
		t.Errorf("created by a clock that is ahead: got %s, want 0", got)
	}
	if got := (Slot{}).Age(); got != 0 {
		t.Errorf("absent: got %s, want 0", got)
	}
	if got := (Slot{Created: time.Now().Add(-time.Hour)}).Age(); got < time.Hour {
		t.Errorf("got %s, want at least an hour", got)
	}
}
