package kvlock

import (
	"cmp"
	"slices"
	"testing"
	"time"
)

func TestExpiry(t *testing.T) {
	t.Parallel()
	seen := time.Now()
	const ttl = time.Minute
	for aged, want := range map[time.Duration]time.Duration{0: ttl, 20 * time.Second: 40 * time.Second, ttl: 0, time.Hour: 0} {
		if got := (Slot{TTL: ttl, aged: aged, seen: seen}).expiry().Sub(seen); got != want {
			t.Errorf("aged %s: expires in %s, want %s", aged, got, want)
		}
	}
	if got := (Slot{Created: seen, seen: seen}).expiry(); !got.IsZero() {
		t.Errorf("without a TTL: expires at %s, want never", got)
	}
}

func TestDeadlineIsBeforeTheServersAndCountsFromSending(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	for ttl, want := range map[time.Duration]time.Duration{
		time.Second:      750 * time.Millisecond,
		2 * time.Second:  1500 * time.Millisecond,
		4 * time.Second:  3 * time.Second,
		time.Minute:      59 * time.Second,
		24 * time.Hour:   24*time.Hour - time.Second,
		10 * time.Second: 9 * time.Second,
	} {
		if got := deadline(sent, ttl).Sub(sent); got != want {
			t.Errorf("TTL %s: deadline after %s, want %s", ttl, got, want)
		}
	}
}

func TestMarkersOutliveWhatTheyHide(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{0, time.Second, time.Minute, 7 * 24 * time.Hour, maxTTL} {
		if got := markerTTL(ttl); got < ttl || checkTTL(got) != nil {
			t.Errorf("marker over a TTL of %s has %s: %v", ttl, got, checkTTL(got))
		}
	}
}

func TestTTLsAreWholeSeconds(t *testing.T) {
	t.Parallel()
	for ttl, ok := range map[time.Duration]bool{
		time.Second: true, time.Minute: true, maxTTL: true,
		0: false, -time.Second: false, time.Millisecond: false, 1500 * time.Millisecond: false, maxTTL + time.Second: false,
	} {
		if err := checkTTL(ttl); (err == nil) != ok {
			t.Errorf("%s: got %v, want ok %v", ttl, err, ok)
		}
	}
}

func TestFollows(t *testing.T) {
	t.Parallel()
	at := time.Now()
	slot := func(revision uint64, created time.Time) Slot { return Slot{Revision: revision, Created: created} }
	tests := []struct {
		name    string
		s, last Slot
		want    bool
	}{
		{"later", slot(2, at), slot(1, at), true},
		{"the same", slot(2, at), slot(2, at), false},
		{"earlier, from a replica that lags", slot(1, at), slot(2, at.Add(time.Second)), false},
		{"lower, of a bucket made anew", slot(1, at.Add(time.Second)), slot(2, at), true},
		{"gone", slot(0, time.Time{}), slot(2, at), true},
		{"still gone", slot(0, time.Time{}), slot(0, time.Time{}), false},
		{"back", slot(3, at), slot(0, time.Time{}), true},
	}
	for _, tt := range tests {
		if got := tt.s.follows(tt.last); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

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

func TestTokensAreOrdered(t *testing.T) {
	t.Parallel()
	ordered := []Token{{}, {Revision: 1}, {Revision: 2}, {Epoch: 1}, {Epoch: 1, Revision: 9}, {Epoch: 2, Revision: 1}}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := a.Compare(b); got != cmp.Compare(i, j) {
				t.Errorf("%s.Compare(%s) = %d, want %d", a, b, got, cmp.Compare(i, j))
			}
		}
	}
	if !slices.IsSortedFunc(ordered, Token.Compare) || ordered[4].String() != "1-9" {
		t.Errorf("sorted wrong, or written wrong: %v", ordered)
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
