package tier_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/tier"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(cfg tier.Config) *tier.Tier[uint64] {
	cfg.MaxAge = cmp.Or(cfg.MaxAge, time.Hour)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 1<<20)
	t := tier.New[uint64](cfg)
	t.Reset(0)
	t.Extend(time.Now().Add(1000 * time.Hour))
	return t
}

// put offers the revision itself as the value.
func put(t *tier.Tier[uint64], key string, revision, asOf uint64) {
	t.Put(tier.Item[uint64]{AsOf: asOf, Key: key, Revision: revision, Size: 100, TTL: time.Hour, Value: revision})
}

func want(t *testing.T, tr *tier.Tier[uint64], key string, revision uint64) {
	t.Helper()
	got, ok := tr.Get(key)
	check.That(t, ok == (revision > 0) && got == revision, "%s: got revision %d, %v; want %d", key, got, ok, revision)
}

// Each answer is as of a sequence. It is kept only when all that happened since is known not to be of its key.
func TestStaleAnswersAreRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		run  func(tr *tier.Tier[uint64])
		want uint64
	}{
		{"read, put", func(tr *tier.Tier[uint64]) { push(tr, "k", "a"); put(tr, "k", 1, 2) }, 1},
		{"read, changed, put", func(tr *tier.Tier[uint64]) { push(tr, "k", "k"); put(tr, "k", 1, 1) }, 0},
		{"read, another key changed, put", func(tr *tier.Tier[uint64]) { push(tr, "k", "a", "b"); put(tr, "k", 1, 1) }, 1},
		{"read, put, changed", func(tr *tier.Tier[uint64]) { push(tr, "k"); put(tr, "k", 1, 1); tr.Pushed("k", 2) }, 0},
		{"put, then the push of itself", func(tr *tier.Tier[uint64]) { put(tr, "k", 1, 1); tr.Pushed("k", 1) }, 1},
		{"put, then the push of the replaced value", func(tr *tier.Tier[uint64]) { put(tr, "k", 2, 2); tr.Pushed("k", 1); tr.Pushed("k", 2) }, 2},
		{"a replica lags behind", func(tr *tier.Tier[uint64]) {
			push(tr, "k", "k", "a")
			put(tr, "k", 2, 3)
			tr.Pushed("k", 4)
			put(tr, "k", 2, 3)
		}, 0},
		{"written here, read before", func(tr *tier.Tier[uint64]) { push(tr, "k"); tr.Changed("k", 2); put(tr, "k", 1, 1) }, 0},
		{"read later, then earlier", func(tr *tier.Tier[uint64]) { put(tr, "k", 2, 2); put(tr, "k", 1, 1) }, 2},
		{"a push got lost", func(tr *tier.Tier[uint64]) { push(tr, "k"); put(tr, "k", 1, 1); tr.Pushed("a", 3) }, 0},
		{"a push got lost, and the read was before it", func(tr *tier.Tier[uint64]) { push(tr, "k"); tr.Pushed("a", 3); put(tr, "k", 1, 1) }, 0},
		{"a push got lost, and the read was after it", func(tr *tier.Tier[uint64]) { push(tr, "k"); tr.Pushed("a", 3); put(tr, "k", 1, 2) }, 1},
		{"a push comes late", func(tr *tier.Tier[uint64]) { tr.Reset(5); put(tr, "k", 4, 5); tr.Pushed("k", 3); tr.Pushed("k", 4) }, 4},
		{"read before a reset", func(tr *tier.Tier[uint64]) { tr.Reset(5); put(tr, "k", 1, 4) }, 0},
		{"read before a push, which came before the beginning", func(tr *tier.Tier[uint64]) {
			push(tr, "a", "k", "a")
			tr.Skip(1)
			put(tr, "k", 1, 1)
		}, 0},
		{"longer ago than is remembered", func(tr *tier.Tier[uint64]) { push(tr, manyKeys(5000)...); put(tr, "k", 1, 1) }, 0},
		{"changed longer ago than is remembered", func(tr *tier.Tier[uint64]) { push(tr, manyKeys(5000)...); put(tr, "k", 1, 4999) }, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tr := open(tier.Config{})
			tt.run(tr)
			want(t, tr, "k", tt.want)
		})
	}
}

func push(tr *tier.Tier[uint64], keys ...string) {
	for _, key := range keys {
		tr.Pushed(key, tr.Applied()+1)
	}
}

// pass lets fake time pass: only in a bubble.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // costs no real time there

func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("x", i)
	}
	return keys
}

// A bucket, its replicas and its pushes, all late by their own: whatever is served was the last revision of its key at
// the earliest when its next one was pushed, or got lost.
func TestNothingOutdatedIsServed(t *testing.T) {
	t.Parallel()
	for range 300 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		tr := open(tier.Config{MaxBytes: 1 << 12})
		stream := []string{""}      // the key written at each sequence
		pushed := uint64(0)         // how far pushes were delivered, or lost
		seen := map[string]uint64{} // the last revision that was got of each key
		key := func() string { return string('a' + rune(r.IntN(6))) }
		last := func(key string, asOf uint64) uint64 {
			for s := asOf; s > 0; s-- {
				if stream[s] == key {
					return s
				}
			}
			return 0
		}
		for range 2000 {
			now := uint64(len(stream) - 1)
			switch r.IntN(7) {
			case 0, 1:
				stream = append(stream, key())
			case 2, 3: // a push arrives, in order; the next ones show those that got lost
				if pushed == now {
					break
				}
				pushed++
				if r.IntN(40) == 0 && pushed < now {
					pushed++
				}
				tr.Pushed(stream[pushed], pushed)
			case 4: // the answer of a replica, or one that took long
				asOf := max(0, now-min(now, uint64(r.IntN(12))))
				k := key()
				if revision := last(k, asOf); revision > 0 {
					put(tr, k, revision, asOf)
				}
			default:
				k := key()
				if got, ok := tr.Get(k); ok {
					if newest := last(k, pushed); got < newest {
						t.Fatalf("seed %d: %s is served at %d, but %d was pushed", seed, k, got, newest)
					}
					check.Require(t, got >= seen[k], "seed %d: %s is served at %d, after %d", seed, k, got, seen[k])
					seen[k] = got
				}
			}
		}
	}
}

// With any number of concurrent puts and drops the bound holds, and the counts are those of the entries.
func TestBoundHolds(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	tr := tier.New[int](tier.Config{MaxAge: time.Hour, MaxBytes: limit})
	tr.Extend(time.Now().Add(time.Hour))
	seed := rand.Uint64()
	var all sync.WaitGroup
	for g := range uint64(4) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, g))
			for range 5000 {
				key := strings.Repeat("k", 1+r.IntN(60)) + fmt.Sprint(r.IntN(200))
				switch r.IntN(10) {
				case 0:
					tr.Changed(key, 1)
				case 1:
					tr.Reset(0)
				default:
					tr.Put(tier.Item[int]{Key: key, Size: r.IntN(20 << 10), TTL: time.Hour})
					tr.Get(key)
				}
				if s := tr.Stats(); s.Bytes > limit || s.Bytes < 0 || (s.Bytes == 0) != (s.Entries == 0) {
					t.Errorf("seed %d: %+v", seed, s)
					return
				}
			}
		})
	}
	all.Wait()
	tr.Put(tier.Item[int]{Key: "huge", Size: limit, TTL: time.Hour})
	_, ok := tr.Get("huge")
	check.That(t, !ok, "a value larger than the bound is kept")
	tr.Close()
	tr.Put(tier.Item[int]{Key: "k", TTL: time.Hour})
	s := tr.Stats()
	check.That(t, s.Bytes == 0 && s.Entries == 0, "seed %d: closed, and yet %+v", seed, s)
}

func TestAges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := tier.New[uint64](tier.Config{MaxAge: time.Minute, MaxBytes: 1 << 20})
		offer := func(key string, ttl time.Duration) { tr.Put(tier.Item[uint64]{Key: key, TTL: ttl, Value: 7}) }
		offer("k", time.Hour)
		want(t, tr, "k", 0) // nothing is confirmed yet
		tr.Extend(time.Now().Add(time.Hour))
		want(t, tr, "k", 7)
		offer("short", time.Second)
		offer("over", 0)
		want(t, tr, "over", 0)
		pass(time.Second - 1)
		want(t, tr, "short", 7)
		pass(1)
		want(t, tr, "short", 0)
		pass(59*time.Second - 1)
		want(t, tr, "k", 7)
		pass(1)
		want(t, tr, "k", 0)
		offer("k", time.Hour)
		tr.Suspend()
		want(t, tr, "k", 0)
		tr.Extend(time.Now().Add(time.Second))
		want(t, tr, "k", 7)
		pass(time.Second)
		want(t, tr, "k", 0)
	})
}

// Keys that are asked for all the time stay, though many others come and go.
func TestEvictionKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := tier.New[uint64](tier.Config{MaxAge: time.Hour, MaxBytes: 500 << 10})
		tr.Extend(time.Now().Add(time.Hour))
		hot := manyKeys(50)
		offer := func(key string) { tr.Put(tier.Item[uint64]{Key: key, Size: 800, TTL: time.Hour, Value: 1}) }
		missed := 0
		for i := range 5000 {
			pass(100 * time.Millisecond)
			offer(fmt.Sprint("once", i))
			for _, key := range hot {
				if _, ok := tr.Get(key); !ok {
					missed++
					offer(key)
				}
			}
		}
		check.That(t, missed <= 50+50, "values in constant use were missed %d times of %d", missed, 5000*len(hot))
	})
}
