// Package tier keeps values of a bucket in the memory of a process, none of them older than the last known change of
// its key.
//
// A stream numbers its changes without gaps and pushes them in this order, and each answer has the number of the change as of which it is
// true. An answer may be kept if all changes since are known, and are changes of other keys. By this rule, without any clock, three kinds
// of answers are refused: those of a replica that lags behind, those under way while their key was changed, and those that came while
// pushes were lost.
package tier

import (
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Config configures a Tier.
type Config struct {
	MaxAge   time.Duration // the longest time for which a value is kept
	MaxBytes int64         // of keys, values, and overhead
}

// Tier is a map of bounded size, safe for concurrent use. It serves nothing until Extend is called.
type Tier[V any] struct {
	cfg    Config
	seed   maphash.Seed
	start  time.Time
	valid  atomic.Int64 // the time until which values are served
	shards []shard[V]
	mask   uint64

	mu      sync.Mutex // held to change the entries; locked before the mutex of a shard
	all     []*entry[V]
	bytes   int64
	closed  bool
	history history
	stats   Stats // but for Hits
}

type shard[V any] struct {
	mu      sync.RWMutex
	entries map[string]*entry[V]
	hits    atomic.Uint64
	_       [64]byte // padding, so that no two are on one cache line
}

type entry[V any] struct {
	key      string
	value    V
	revision uint64
	size     int64
	until    int64        // since Tier.start
	index    int          // in Tier.all
	used     atomic.Int64 // when it was, about
}

// Stats has counts since the Tier was made, except Bytes and Entries, which are those of now.
type Stats struct {
	Bytes         int64
	Entries       int64
	Evictions     uint64
	Flushes       uint64 // of everything
	Hits          uint64
	Invalidations uint64
	Refused       uint64 // values that were not kept because they may have been outdated
}

// New returns an empty Tier.
func New[V any](cfg Config) *Tier[V] {
	n := uint64(1)
	for n < 4*uint64(runtime.GOMAXPROCS(0)) { //nolint:gosec // positive
		n *= 2
	}
	t := &Tier[V]{cfg: cfg, seed: maphash.MakeSeed(), start: time.Now(), shards: make([]shard[V], n), mask: n - 1}
	for i := range t.shards {
		t.shards[i].entries = map[string]*entry[V]{}
	}
	return t
}

func (t *Tier[V]) hash(key string) uint64 { return maphash.String(t.seed, key) }

func (t *Tier[V]) shard(hash uint64) *shard[V] { return &t.shards[hash&t.mask] }

func (t *Tier[V]) now() int64 { return int64(time.Since(t.start)) }

// Get returns the value that is kept for key.
func (t *Tier[V]) Get(key string) (value V, ok bool) {
	now := t.now()
	s := t.shard(t.hash(key))
	s.mu.RLock()
	e := s.entries[key]
	s.mu.RUnlock()
	if e == nil || now >= e.until || now >= t.valid.Load() {
		return value, false
	}
	s.hits.Add(1)
	e.use(now)
	return e.value, true
}

// The least time between two notes of a use, so that not each reader of a popular entry writes to it.
const noteEvery = int64(time.Millisecond)

func (e *entry[V]) use(now int64) {
	if now-e.used.Load() > noteEvery {
		e.used.Store(now)
	}
}

// Item is a value from the bucket.
type Item[V any] struct {
	AsOf     uint64 // the sequence of the bucket at which Revision was the key's last
	Key      string
	Revision uint64
	Size     int           // of the value
	TTL      time.Duration // from now; an item without a positive TTL is not kept
	Value    V
}

// Put keeps the item, if it is known to be the last of its key.
func (t *Tier[V]) Put(item Item[V]) {
	hash, now := t.hash(item.Key), t.now()
	until := now + int64(min(item.TTL, t.cfg.MaxAge))
	e := &entry[V]{key: item.Key, value: item.Value, revision: item.Revision, until: until}
	e.size = int64(overhead(e) + len(item.Key) + item.Size)
	e.used.Store(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.history.note(item.Revision, hash)
	if t.history.changed(hash, max(item.AsOf, item.Revision)) {
		t.stats.Refused++
		return
	}
	s := t.shard(hash)
	if old := s.entries[item.Key]; old != nil {
		t.remove(s, old)
	}
	if t.closed || until <= now || e.size > t.cfg.MaxBytes {
		return
	}
	for t.bytes+e.size > t.cfg.MaxBytes {
		t.evict(now)
	}
	e.index = len(t.all)
	t.all = append(t.all, e)
	t.bytes += e.size
	s.mu.Lock()
	s.entries[item.Key] = e
	s.mu.Unlock()
}

// overhead is the memory of an entry without its key and value: itself, its place in the map, which is between seven
// sixteenths and seven eighths full, and its place in the list, which is at least three quarters full.
func overhead[V any](e *entry[V]) int {
	const inMap, inList = (16 + 8 + 1) * 2, 8 * 2
	return int(unsafe.Sizeof(*e)) + inMap + inList
}

// sample is the number of entries of which the worst is evicted.
const sample = 8

func (t *Tier[V]) evict(now int64) {
	worst := t.all[rand.IntN(len(t.all))] //nolint:gosec // as above
	for range sample - 1 {
		e := t.all[rand.IntN(len(t.all))] //nolint:gosec // as above
		if worst.until > now && (e.until <= now || e.used.Load() < worst.used.Load()) {
			worst = e
		}
	}
	t.remove(t.shard(t.hash(worst.key)), worst)
	t.stats.Evictions++
}

func (t *Tier[V]) remove(s *shard[V], e *entry[V]) {
	last := t.all[len(t.all)-1]
	t.all[e.index], last.index = last, e.index
	t.all[len(t.all)-1] = nil
	t.all = t.all[:len(t.all)-1]
	t.bytes -= e.size
	s.mu.Lock()
	delete(s.entries, e.key)
	s.mu.Unlock()
}

// Pushed applies a change that the bucket pushed; the caller calls it in the order of the pushes. When earlier changes were lost,
// everything is dropped.
func (t *Tier[V]) Pushed(key string, sequence uint64) {
	hash := t.hash(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.history.onPush(sequence, hash) {
		t.flush()
	}
	t.outdate(key, hash, sequence)
}

// Changed applies a change that is known from an answer, maybe before it is pushed.
func (t *Tier[V]) Changed(key string, sequence uint64) {
	hash := t.hash(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.history.note(sequence, hash)
	t.outdate(key, hash, sequence)
}

func (t *Tier[V]) outdate(key string, hash, sequence uint64) {
	s := t.shard(hash)
	if e := s.entries[key]; e != nil && e.revision < sequence {
		t.remove(s, e)
		t.stats.Invalidations++
	}
}

// Applied returns the last change up to which the Tier knows all changes.
func (t *Tier[V]) Applied() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.history.applied
}

// Extend allows serving values until the given time, a bound that the caller adds to a time at which all changes were applied.
func (t *Tier[V]) Extend(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.valid.Store(int64(until.Sub(t.start)))
	}
}

// Suspend stops serving until Extend is called again.
func (t *Tier[V]) Suspend() { t.valid.Store(0) }

// Skip drops everything and begins anew behind sequence, or behind the last pushed change, if that is later.
func (t *Tier[V]) Skip(sequence uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.history.reset(max(sequence, t.history.applied))
	t.flush()
}

// Reset drops everything and begins anew behind sequence, ignoring earlier pushes: the stream is another one, or has
// been restored.
func (t *Tier[V]) Reset(sequence uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.history.reset(sequence)
	t.flush()
}

// Close drops everything; later values are not kept.
func (t *Tier[V]) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.valid.Store(0)
	t.flush()
}

func (t *Tier[V]) flush() {
	if len(t.all) > 0 {
		t.stats.Flushes++
	}
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.entries = map[string]*entry[V]{}
		s.mu.Unlock()
	}
	t.all, t.bytes = nil, 0
}

// Stats returns the size and the counts of the Tier.
func (t *Tier[V]) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	stats := t.stats
	stats.Bytes, stats.Entries = t.bytes, int64(len(t.all))
	for i := range t.shards {
		stats.Hits += t.shards[i].hits.Load()
	}
	return stats
}

// remembered is the number of last changes of the bucket whose keys are known.
const remembered = 4096

// history has the last changes of a stream. The sequences of a stream have no gaps, so missing changes are known too.
type history struct {
	applied uint64 // all changes up to this one were pushed, or no older value is kept
	highest uint64 // the last known change, maybe only from an answer
	changes [remembered]change
}

// change is the key that was written at a sequence.
type change struct {
	sequence uint64
	hash     uint64
}

// onPush records the next pushed change, and reports whether earlier changes were lost. A late change is not a gap.
func (h *history) onPush(sequence, hash uint64) (gap bool) {
	gap = sequence > h.applied+1
	h.applied = max(h.applied, sequence)
	h.note(sequence, hash)
	return gap
}

// note records a change that is known from an answer, maybe before it is pushed.
func (h *history) note(sequence, hash uint64) {
	h.highest = max(h.highest, sequence)
	c := &h.changes[sequence%remembered]
	if c.sequence < sequence {
		*c = change{sequence, hash}
	}
}

// changed reports whether the key with hash was, or may have been, written after sequence asOf of the bucket. Unknown changes after the
// last pushed change do not count: their pushes will come.
func (h *history) changed(hash, asOf uint64) bool {
	last := max(h.applied, h.highest)
	if asOf+remembered <= last {
		return true
	}
	for s := asOf + 1; s <= last; s++ {
		switch c := h.changes[s%remembered]; {
		case c.sequence != s && s <= h.applied:
			return true // it was lost
		case c.sequence == s && c.hash == hash:
			return true
		}
	}
	return false
}

// reset begins anew behind sequence.
func (h *history) reset(sequence uint64) { *h = history{applied: sequence, highest: sequence} }
