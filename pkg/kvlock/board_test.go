package kvlock

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestDueHeapGivesTheEarliest(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	start := time.Now()
	var due dueHeap
	var all []*watched
	check := func() {
		for i, k := range due {
			if k.index != i || k.next.Before(due[0].next) {
				t.Fatalf("seed %d: element %d has index %d and is due %s, the first %s", seed, i, k.index, k.next, due[0].next)
			}
		}
	}
	for range 2000 {
		at := start.Add(time.Duration(r.Int64N(int64(time.Hour))))
		switch n := r.IntN(4); {
		case n == 0 && len(all) > 0:
			i := r.IntN(len(all))
			heap.Remove(&due, all[i].index)
			all = append(all[:i], all[i+1:]...)
		case n == 1 && len(all) > 0:
			k := all[r.IntN(len(all))]
			k.next = at
			heap.Fix(&due, k.index)
		default:
			k := &watched{next: at}
			heap.Push(&due, k)
			all = append(all, k)
		}
		check()
	}
}

func TestNextReadIsAtTheExpiryOrSoon(t *testing.T) {
	t.Parallel()
	now := time.Now()
	pending := func(age time.Duration) Slot {
		return Slot{State: Pending, TTL: time.Minute, aged: age, seen: now, Revision: 1}
	}
	tests := []struct {
		name             string
		last             Slot
		earliest, latest time.Duration
	}{
		{"absent", Slot{}, recheckEvery, 2 * recheckEvery},
		{"done", Slot{State: Done, TTL: time.Second, Created: now, seen: now}, recheckEvery, 2 * recheckEvery},
		{"pending for long", pending(0), recheckEvery, 2 * recheckEvery},
		{"pending for half a second", pending(59500 * time.Millisecond), 500 * time.Millisecond, 500 * time.Millisecond},
		{"pending for an instant", pending(time.Minute - 2), together, together},
		{"over just now", pending(time.Minute), expiryStep, expiryStep},
		{"over for a second", Slot{State: Pending, TTL: time.Second, Created: now.Add(-2 * time.Second), seen: now.Add(-2 * time.Second)}, expiryStep, expiryStep},
		{"over for long", Slot{State: Pending, TTL: time.Second, Created: now.Add(-time.Hour), seen: now.Add(-time.Hour)}, recheckEvery, 2 * recheckEvery},
		{"pending without a TTL", Slot{State: Pending}, recheckEvery, 2 * recheckEvery},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := (&watched{last: &tt.last}).nextRead(now).Sub(now); got < tt.earliest || got > tt.latest {
				t.Errorf("read in %s, want %s to %s", got, tt.earliest, tt.latest)
			}
		})
	}
}

func TestSourceOfPushes(t *testing.T) {
	t.Parallel()
	const prefix = "$KV.b."
	tests := []struct {
		name      string
		republish *jetstream.RePublish
		want      source
	}{
		{"none", nil, source{}},
		{"as StreamConfig sets it", StreamConfig(BucketConfig{Bucket: "b"}).RePublish, source{subject: "rp.b.$KV.b.>", trim: "rp.b.$KV.b."}},
		{"no source", &jetstream.RePublish{Destination: "x.>"}, source{subject: "x.$KV.b.>", trim: "x.$KV.b."}},
		{"the bucket's subjects", &jetstream.RePublish{Source: prefix + ">", Destination: "x.>"}, source{subject: "x.>", trim: "x."}},
		{"a part of the keys", &jetstream.RePublish{Source: prefix + "a.>", Destination: "x.>"}, source{}},
		{"headers only", &jetstream.RePublish{Source: ">", Destination: "x.>", HeadersOnly: true}, source{}},
		{"one subject for all", &jetstream.RePublish{Source: ">", Destination: "x"}, source{}},
		{"mapped", &jetstream.RePublish{Source: ">", Destination: "x.{{wildcard(1)}}.>"}, source{}},
	}
	for _, tt := range tests {
		if got := newSource(prefix, tt.republish); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// A watcher is told the latest of each key once, in the order in which the keys had news.
func TestWatcherCoalesces(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, []string{"a", "b"})
	slot := func(key string, revision uint64, state State) *Slot {
		return &Slot{Key: key, Revision: revision, State: state}
	}
	w.tell(slot("a", 1, Pending), true)
	w.tell(slot("b", 2, Pending), true)
	w.tell(slot("a", 3, Done), false)
	w.tell(slot("a", 1, Pending), true) // late
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
	w := newWatcher(nil, []string{"a"})
	w.tell(&Slot{Key: "a", Revision: 1, State: Done}, false)
	if got, ok := takenBy(w); ok {
		t.Errorf("was told %+v, which others knew before it came", got)
	}
	w.tell(&Slot{Key: "a", Revision: 2, State: Pending}, true)
	w.tell(&Slot{Key: "a", Revision: 3, State: Done}, false)
	if got, ok := takenBy(w); !ok || got.Revision != 3 {
		t.Errorf("got %+v, %v; want revision 3", got, ok)
	}
}

func TestWatcherIsNotToldThatAMarkerHasGone(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, []string{"a"})
	w.tell(&Slot{Key: "a", Revision: 4, State: Failed, marker: true, Claim: "c"}, true)
	if got, ok := takenBy(w); !ok || !got.past {
		t.Errorf("got %+v, %v; want a failure that is past", got, ok)
	}
	w.tell(&Slot{Key: "a"}, false)
	if got, ok := takenBy(w); ok {
		t.Errorf("was told %+v", got)
	}
	w.tell(&Slot{Key: "a", Revision: 5, State: Pending, Claim: "d"}, false)
	w.tell(&Slot{Key: "a", Revision: 6, State: Failed, marker: true, Claim: "d"}, false)
	if got, ok := takenBy(w); !ok || got.past || got.Revision != 6 {
		t.Errorf("got %+v, %v; want the failure of the claim that was watched", got, ok)
	}
}

// A read that began before a push may have missed what the push is about: it does not put off the next one.
func TestEarlierReadDoesNotSettleAPush(t *testing.T) {
	t.Parallel()
	b := newBoard(&store{}, nil)
	k := &watched{key: "k"}
	b.keys["k"] = k
	heap.Push(&b.due, k)
	b.reads = 7 // the last one is under way
	b.readSoon("k")
	b.tell(Slot{Key: "k"}, 7)
	if !k.next.IsZero() {
		t.Error("the key is not due any more")
	}
	b.tell(Slot{Key: "k"}, 8)
	if k.next.IsZero() {
		t.Error("the key is still due")
	}
}

func takenBy(w *Watcher) (slot Slot, ok bool) {
	news := w.take()
	if news == nil {
		return Slot{}, false
	}
	return *news, true
}
