package kvlock

import (
	"container/heap"
	"testing"
	"testing/synctest"
	"time"
)

// The reading is woken for what is due before it would look by itself, and left alone by all other pushes.
func TestReadingIsWokenForWhatIsDueEarlier(t *testing.T) {
	t.Parallel()
	pending := Slot{Key: "k", Revision: 1, State: Pending, TTL: 500 * time.Millisecond}
	tests := []struct {
		name  string
		slot  Slot          // seen now
		until time.Duration // the reading sleeps
		woken bool
	}{
		{"a claim that ends before", pending, 2 * recheckEvery, true},
		{"a claim that ends after", pending, recheckEvery / 4, false},
		{"a result", Slot{Key: "k", Revision: 1, State: Done}, recheckEvery / 2, false},
		{"a claim, while the reading is awake", pending, -recheckEvery, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // no time passes
				now := time.Now()
				tt.slot.seen = now
				b := &board{keys: map[string]*watched{}, wake: make(chan struct{}, 1), until: now.Add(tt.until)}
				k := &watched{key: "k", next: now.Add(tt.until)}
				k.watchers.add(&Watcher{keys: []string{"k"}, heard: func(Slot) {}}, 0)
				b.keys["k"] = k
				heap.Push(&b.due, k)
				b.tell(tt.slot, 0)
				if woken := len(b.wake) == 1; woken != tt.woken {
					t.Errorf("woken: %t", woken)
				}
				if d := b.untilDue(); !b.until.Equal(k.next) || d <= 0 || d > 2*recheckEvery {
					t.Errorf("sleeps until %s, for %s, and the key is due %s", b.until, d, k.next)
				}
			})
		})
	}
}
