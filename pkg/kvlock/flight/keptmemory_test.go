package flight

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func openMemory(cfg MemoryConfig) *memory {
	m := emptyMemory(nil, cfg)
	m.history.reset(0)
	serve(m, 1000*time.Hour)
	return m
}

// serve lets m return entries for d.
func serve(m *memory, d time.Duration) { m.Extend(time.Now().Add(d - memoryBound)) }

// put offers an answer as of a sequence, in the present era; putOf in any.
func put(m *memory, key string, revision, asOf uint64) { putOf(m, m.era, key, revision, asOf) }

func putOf(m *memory, era uint64, key string, revision, asOf uint64) {
	m.keep(Entry{Key: key, State: Done, Revision: revision, Value: make([]byte, 100), asOf: asOf, inner: &inner{era: era}}, time.Hour)
}

func want(t *testing.T, m *memory, key string, revision uint64) {
	t.Helper()
	got, ok := m.recall(key)
	check.That(t, ok == (revision > 0) && got.Revision == revision, "%s: got revision %d, %v; want %d", key, got.Revision, ok, revision)
}

// Each answer is as of a sequence. It is kept only when all that happened since is known not to be of its key.
func TestStaleAnswersAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		run  func(m *memory)
		want uint64
	}{
		{"read, put", func(m *memory) { push(m, "k", "a"); put(m, "k", 1, 2) }, 1},
		{"read, changed, put", func(m *memory) { push(m, "k", "k"); put(m, "k", 1, 1) }, 0},
		{"read, another key changed, put", func(m *memory) { push(m, "k", "a", "b"); put(m, "k", 1, 1) }, 1},
		{"read, put, changed", func(m *memory) { push(m, "k"); put(m, "k", 1, 1); m.Pushed("k", 2) }, 0},
		{"put, then the push of itself", func(m *memory) { put(m, "k", 1, 1); m.Pushed("k", 1) }, 1},
		{"put, then the push of the replaced value", func(m *memory) { put(m, "k", 2, 2); m.Pushed("k", 1); m.Pushed("k", 2) }, 2},
		{"a replica lags behind", func(m *memory) {
			push(m, "k", "k", "a")
			put(m, "k", 2, 3)
			m.Pushed("k", 4)
			put(m, "k", 2, 3)
		}, 0},
		{"written here, read before", func(m *memory) { push(m, "k"); m.Changed("k", 2, 0); put(m, "k", 1, 1) }, 0},
		{"written here, and pushed", func(m *memory) { push(m, "a", "k"); put(m, "k", 2, 0) }, 2},
		{"read later, then earlier", func(m *memory) { put(m, "k", 2, 2); put(m, "k", 1, 1) }, 2},
		{"a push got lost", func(m *memory) { push(m, "k"); put(m, "k", 1, 1); m.Pushed("a", 3) }, 0},
		{"a push got lost, and the read was before it", func(m *memory) { push(m, "k"); m.Pushed("a", 3); put(m, "k", 1, 1) }, 0},
		{"a push got lost, and the read was after it", func(m *memory) { push(m, "k"); m.Pushed("a", 3); put(m, "k", 1, 2) }, 1},
		{"a push comes late", func(m *memory) { m.Reset(5); put(m, "k", 4, 5); m.Pushed("k", 3); m.Pushed("k", 4) }, 4},
		{"read before a reset", func(m *memory) { m.Reset(5); put(m, "k", 1, 4) }, 0},
		{"read from a former stream", func(m *memory) { m.Reset(5); putOf(m, 0, "k", 1000, 1000); m.Pushed("k", 6) }, 0},
		{"written to a former stream", func(m *memory) { m.Reset(5); m.Changed("a", 5000, 0); put(m, "k", 5, 5) }, 5},
		{"read before a push, which came before the beginning", func(m *memory) {
			push(m, "a", "k", "a")
			m.Skip(1)
			put(m, "k", 1, 1)
		}, 0},
		{"longer ago than is remembered", func(m *memory) { push(m, manyKeys(5000)...); put(m, "k", 1, 1) }, 0},
		{"changed longer ago than is remembered", func(m *memory) { push(m, manyKeys(5000)...); put(m, "k", 1, 4999) }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := openMemory(MemoryConfig{MaxBytes: 1 << 20})
			tt.run(m)
			want(t, m, "k", tt.want)
		})
	}
}

func TestOnlyOutcomesAreKept(t *testing.T) {
	t.Parallel()
	m := openMemory(MemoryConfig{MaxBytes: 1 << 20})
	for key, e := range map[string]Entry{
		"absent": {State: Absent}, "pending": {State: Pending}, "marker": {State: Done, marker: true}, "sealed": {State: Done, sealed: true},
		"failed": {State: Failed}, "done": {State: Done},
	} {
		e.Key = key
		m.keep(e, time.Hour)
		_, ok := m.recall(key)
		check.That(t, ok == (key == "failed" || key == "done"), "%s: kept is %v", key, ok)
	}
}

func push(m *memory, keys ...string) {
	for _, key := range keys {
		m.Pushed(key, m.history.applied+1)
	}
}

func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("x", i)
	}
	return keys
}

// With any number of concurrent puts and drops the bound holds, and the counts are those of the entries.
func TestBoundHolds(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	m := openMemory(MemoryConfig{MaxBytes: limit})
	seed := rand.Uint64()
	var all sync.WaitGroup
	for g := range uint64(4) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, g))
			for range 5000 {
				key := strings.Repeat("k", 1+10*r.IntN(6)) + fmt.Sprint(r.IntN(3)) // so few that many are replaced
				switch r.IntN(10) {
				case 0:
					m.Changed(key, 1, 0)
				case 1:
					m.Skip(0)
				default:
					m.keep(Entry{Key: key, State: Done, Value: make([]byte, r.IntN(20<<10))}, time.Hour)
					m.recall(key)
				}
				if s := m.counts(); s.Bytes > limit || s.Bytes < 0 || (s.Bytes == 0) != (s.Entries == 0) {
					t.Errorf("seed %d: %+v", seed, s)
					return
				}
			}
		})
	}
	all.Wait()
	kept, size := 0, int64(0)
	for i := range m.shards {
		kept += len(m.shards[i].entries)
		for _, e := range m.shards[i].entries {
			size += e.size
		}
	}
	s := m.counts()
	check.That(t, s.Entries == int64(kept) && s.Bytes == size, "seed %d: %+v of %d entries of %d bytes", seed, s, kept, size)
	m.keep(Entry{Key: "huge", State: Done, Value: make([]byte, limit)}, time.Hour)
	_, ok := m.recall("huge")
	check.That(t, !ok, "a value larger than the bound is kept")
	m.close()
	m.keep(Entry{Key: "k", State: Done}, time.Hour)
	s = m.counts()
	check.That(t, s.Bytes == 0 && s.Entries == 0, "seed %d: closed, and yet %+v", seed, s)
}

func TestAges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := emptyMemory(nil, MemoryConfig{MaxAge: time.Minute, MaxBytes: 1 << 20})
		offer := func(key string, ttl time.Duration) { m.keep(Entry{Key: key, State: Done, Revision: 7, asOf: 9}, ttl) }
		offer("k", time.Hour)
		want(t, m, "k", 0) // nothing is confirmed yet
		serve(m, time.Hour)
		want(t, m, "k", 7)
		offer("short", time.Second)
		offer("over", 0)
		want(t, m, "over", 0)
		natstest.Pass(time.Second - 1)
		want(t, m, "short", 7)
		natstest.Pass(1)
		want(t, m, "short", 0)
		natstest.Pass(59*time.Second - 1)
		want(t, m, "k", 7)
		natstest.Pass(1)
		want(t, m, "k", 0)
		offer("k", time.Hour)
		m.Suspend()
		want(t, m, "k", 0)
		serve(m, time.Second)
		want(t, m, "k", 7)
		natstest.Pass(time.Second)
		want(t, m, "k", 0)
	})
}

// Keys that are asked for all the time stay, though many others come and go.
func TestEvictionKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := openMemory(MemoryConfig{MaxAge: time.Hour, MaxBytes: 500 << 10})
		hot := manyKeys(50)
		offer := func(key string) { m.keep(Entry{Key: key, State: Done, Value: make([]byte, 800)}, time.Hour) }
		missed := 0
		for i := range 5000 {
			natstest.Pass(100 * time.Millisecond)
			offer(fmt.Sprint("once", i))
			for _, key := range hot {
				if _, ok := m.recall(key); !ok {
					missed++
					offer(key)
				}
			}
		}
		check.That(t, missed <= 50+50, "values in constant use were missed %d times of %d", missed, 5000*len(hot))
	})
}
