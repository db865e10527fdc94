package kv

import (
	"container/heap"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNextReadIsAtTheExpiryOrSoon(t *testing.T) {
	t.Parallel()
	now := time.Now()
	polled := func(ttl, age time.Duration, seen time.Time) View {
		return View{Polled: true, Expires: Expiry(ttl, age, seen)}
	}
	pending := func(age time.Duration) View { return polled(time.Minute, age, now) }
	for _, tt := range []struct {
		name             string
		view             View
		earliest, latest time.Duration
	}{
		{"absent", View{}, PollEvery, 2 * PollEvery},
		{"done", View{Expires: Expiry(time.Second, 0, now)}, PollEvery, 2 * PollEvery},
		{"pending for long", pending(0), PollEvery, 2 * PollEvery},
		{"pending for half a second", pending(59500 * time.Millisecond), 500 * time.Millisecond, 500 * time.Millisecond},
		{"pending for an instant", pending(time.Minute - 2), batchWindow, batchWindow},
		{"over just now", pending(time.Minute), expiryStep, expiryStep},
		{"over for a second", polled(time.Second, 0, now.Add(-2*time.Second)), expiryStep, expiryStep},
		{"over for long", polled(time.Second, 0, now.Add(-time.Hour)), PollEvery, 2 * PollEvery},
		{"pending without a TTL", polled(0, 0, now), PollEvery, 2 * PollEvery},
	} {
		got := (&watched{known: true, view: tt.view}).nextRead(now).Sub(now)
		check.That(t, got >= tt.earliest && got <= tt.latest, "%s: read in %s, want %s to %s", tt.name, got, tt.earliest, tt.latest)
	}
}

func TestWherePushesComeFrom(t *testing.T) {
	t.Parallel()
	const prefix = "$KV.b."
	for _, tt := range []struct {
		name      string
		republish *jetstream.RePublish
		want      string
	}{
		{"none", nil, ""},
		{"as StreamConfig sets it", &jetstream.RePublish{Source: ">", Destination: "rp.b.>"}, "rp.b.$KV.b."},
		{"another destination", &jetstream.RePublish{Source: ">", Destination: "x.>"}, "x.$KV.b."},
		{"a part of the keys", &jetstream.RePublish{Source: prefix + "a.>", Destination: "x.>"}, ""},
		{"headers only", &jetstream.RePublish{Source: ">", Destination: "x.>", HeadersOnly: true}, ""},
		{"one subject for all", &jetstream.RePublish{Source: ">", Destination: "x"}, ""},
		{"mapped", &jetstream.RePublish{Source: ">", Destination: "x.{{wildcard(1)}}.>"}, ""},
	} {
		check.Equal(t, pushPrefix(prefix, tt.republish), tt.want, tt.name)
	}
}

// A read that began before a push may have missed the pushed write: it does not defer the next one.
func TestEarlierReadDoesNotDeferTheNext(t *testing.T) {
	t.Parallel()
	h := newHub(&Store{}, nil)
	k := &watched{key: "k"}
	h.keys["k"] = k
	heap.Push(&h.due, k)
	h.reads = 7 // the last one is under way
	h.readSoon("k")
	h.update(&Entry{Key: "k"}, View{}, 7)
	check.That(t, k.next.IsZero(), "the key is not due any more")
	h.update(&Entry{Key: "k"}, View{}, 8)
	check.That(t, !k.next.IsZero(), "the key is still due")
}

// A read that began before a push, and found no key, does not undo the push. A later one does.
func TestEarlierReadDoesNotUndoAPush(t *testing.T) {
	t.Parallel()
	for expires, want := range map[time.Duration]uint64{0: 5, time.Minute: 5, -time.Minute: 0} { // a claim that is over is gone
		h := newHub(&Store{}, nil)
		k := &watched{key: "k"}
		h.keys["k"] = k
		heap.Push(&h.due, k)
		h.reads = 7 // the last one is under way
		v := View{}
		if expires != 0 {
			v.Expires = time.Now().Add(expires)
		}
		h.update(&Entry{Key: "k", Revision: 5, Created: time.Now()}, v, 0)
		h.update(&Entry{Key: "k", AsOf: 9}, View{}, 7)
		check.That(t, k.revision == want && (want == 0 || k.asOf != 9),
			"a claim that ends in %s: revision %d as of %d, want %d", expires, k.revision, k.asOf, want)
		h.update(&Entry{Key: "k", AsOf: 9}, View{}, 8)
		check.That(t, k.revision == 0 && k.asOf == 9,
			"a claim that ends in %s: revision %d as of %d after a later read", expires, k.revision, k.asOf)
	}
}

// A push wakes the poller only for a key that is due before the poller would look by itself.
func TestPollerIsWokenForWhatIsDueEarlier(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		claim bool          // of half a second, seen now; else a result
		until time.Duration // the poller sleeps
		woken bool
	}{
		{"a claim that ends before", true, 2 * PollEvery, true},
		{"a claim that ends after", true, PollEvery / 4, false},
		{"a result", false, PollEvery / 2, false},
		{"a claim, while the poller is awake", true, -PollEvery, false},
	} {
		synctest.Test(t, func(t *testing.T) { // no time passes
			now := time.Now()
			h := &Hub{keys: map[string]*watched{}, wake: make(chan struct{}, 1), until: now.Add(tt.until)}
			k := &watched{key: "k", next: now.Add(tt.until)}
			k.watchers.add(&Watch{Keys: []string{"k"}, To: deaf{}}, 0)
			h.keys["k"] = k
			heap.Push(&h.due, k)
			var v View
			if tt.claim {
				v = View{Polled: true, Expires: Expiry(500*time.Millisecond, 0, now)}
			}
			h.update(&Entry{Key: "k", Revision: 1}, v, 0)
			check.Equal(t, len(h.wake) == 1, tt.woken, tt.name+": woken")
			d := h.untilDue()
			check.That(t, h.until.Equal(k.next) && d > 0 && d <= 2*PollEvery, "%s: sleeps until %s, for %s, and the key is due %s",
				tt.name, h.until, d, k.next)
		})
	}
}

// deaf is a receiver that takes everything and does nothing.
type deaf struct{}

func (deaf) Deliver(any, bool) {}
func (deaf) Knows(string) bool { return true }
func (deaf) Wake()             {}

// A server that answers for a stream is believed for as long ago as it was the leader for sure.
func TestLeads(t *testing.T) {
	t.Parallel()
	peer := func(name string, active time.Duration) *jetstream.PeerInfo {
		return &jetstream.PeerInfo{Name: name, Active: active}
	}
	for _, tt := range []struct {
		name    string
		leader  string
		others  []*jetstream.PeerInfo
		want    time.Duration
		refused bool
	}{
		{"the only one", "a", nil, 0, false},
		{"with a majority", "a", []*jetstream.PeerInfo{peer("b", 2), peer("c", time.Hour)}, 2, false},
		{"with the second of four", "a", []*jetstream.PeerInfo{peer("b", 9), peer("c", 3), peer("d", 5), peer("e", 7)}, 5, false},
		{"with the other of two", "a", []*jetstream.PeerInfo{peer("b", 9)}, 9, false},
		{"cut off for long", "a", []*jetstream.PeerInfo{peer("b", time.Minute), peer("c", time.Hour)}, time.Minute, false},
		{"that never heard of anybody", "a", []*jetstream.PeerInfo{peer("b", 0), peer("c", 0)}, 0, true},
		{"that heard of too few", "a", []*jetstream.PeerInfo{peer("b", 1), peer("c", 0), peer("d", 0), peer("e", 0)}, 0, true},
		{"another", "b", []*jetstream.PeerInfo{peer("b", 1), peer("c", 1)}, 0, true},
		{"nobody", "", []*jetstream.PeerInfo{peer("a", 1), peer("b", 1), peer("c", 1)}, 0, true},
	} {
		got, err := leads(&jetstream.ClusterInfo{Leader: tt.leader, Replicas: tt.others})
		check.That(t, got == tt.want && (err != nil) == tt.refused, "%s: got %s, %v", tt.name, got, err)
	}
	got, err := leads(nil)
	check.That(t, got == 0 && err == nil, "of a server that is not in a cluster: %s, %v", got, err)
}

// A key that passes is a key by the client's own rule (ADR-8), and one subject.
func FuzzKey(f *testing.F) {
	rule := regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)
	longest := strings.Repeat("k", MaxKeyBytes)
	for _, seed := range []string{
		"a", "wolt.abc", "aZ09-/_=.x", "_x", longest, "", longest + "k", ".", ".a", "a.", "a..b", "*", ">", "a.*", "a.>", "a b",
		"a\nPUB x", "\x00", "a\x00", "ä", "קפה", "a:b", `a\b`, "\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		bad := !rule.MatchString(key) || strings.HasPrefix(key, ".") || strings.HasSuffix(key, ".") ||
			strings.Contains(key, "..") || len(key) > MaxKeyBytes
		err := CheckKey(key)
		check.That(t, (err != nil) == bad && (!bad || errors.Is(err, ErrInvalidKey)), "CheckKey(%q) = %v, want an error: %v", key, err, bad)
	})
}
