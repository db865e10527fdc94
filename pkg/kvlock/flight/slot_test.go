package flight

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/record"
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

func TestReferences(t *testing.T) {
	t.Parallel()
	id, revision, attempt, err := parseRef(formatRef("AbC09", 7, 3))
	if err != nil || id != "AbC09" || revision != 7 || attempt != 3 {
		t.Errorf("got %q, %d, %d, %v", id, revision, attempt, err)
	}
	for _, ref := range []string{
		"", ".", "..", "a", "a.1", "a.1.", "a.1.0", "a.1.-1", "a.-1.1", "a.1.1.1", ".1.1", "a.x.1", "a.1.x", "a b.1.1", "a\n.1.1", "ä.1.1",
		"a.99999999999999999999.1", "a.1.99999999999", strings.Repeat("a", record.MaxIDBytes+1) + ".1.1", "a." + strings.Repeat("0", 1000) + "1.1",
	} {
		if _, _, _, err := parseRef(ref); !errors.Is(err, ErrInvalidRef) {
			t.Errorf("%q is %v, want ErrInvalidRef", ref, err)
		}
	}
}

func FuzzReference(f *testing.F) {
	f.Add("abc.1.1")
	f.Add("...")
	f.Fuzz(func(t *testing.T, ref string) {
		id, revision, attempt, err := parseRef(ref)
		if err != nil {
			return
		}
		id2, revision2, attempt2, err := parseRef(formatRef(id, revision, attempt))
		if err != nil || id2 != id || revision2 != revision || attempt2 != attempt || !record.IsID(id) {
			t.Errorf("%q: got %q.%d.%d, then %q.%d.%d, %v", ref, id, revision, attempt, id2, revision2, attempt2, err)
		}
	})
}
