package flight

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// MemoryConfig bounds the results that a [Flight] keeps in the memory of its process, so that [Flight.Get],
// [Flight.GetMany] and [Flight.Do] return them without a round trip. The zero value keeps none.
//
// A push from the bucket drops a result when its key changes. A result that such a push might have overtaken on its way
// is not kept. A lost push shows in the sequence numbers of the next pushes, or in the answer of the stream's leader, which is asked every
// second. Then all results are dropped. So memory is never more than 3 seconds behind: a result that was replaced or invalidated longer
// ago is not returned, whatever messages got lost. Only when an administrator removes a message or purges the stream by hand does
// MaxAge alone bound the age.
//
// Results expire with their TTL as the server counts it, whatever this process's clock shows.
//
// The price: every change of the bucket is sent to this process, and the leader answers one small request a second.
type MemoryConfig struct {
	// MaxAge bounds the time for which a result is kept before it is read from the bucket again. Defaults to 5 minutes.
	MaxAge time.Duration

	// MaxBytes bounds the memory: keys, values and some 400 bytes of overhead for each. It is never exceeded: of
	// eight results at random, the one that was used longest ago is dropped. A larger result is not kept. Defaults to 0: nothing is kept.
	MaxBytes int64
}

const (
	defaultMemoryAge = 5 * time.Minute

	// memoryBound is the time for which the memory is trusted after a request to the leader: the greatest age of a result.
	memoryBound = 3 * time.Second
)

func (cfg MemoryConfig) validate() error {
	return errors.Join(
		validate.If(cfg.MaxAge < 0, "kvlock: Memory.MaxAge is %s: want a positive duration", cfg.MaxAge),
		validate.If(cfg.MaxBytes < 0, "kvlock: Memory.MaxBytes is %d: want a positive number, or 0 for none", cfg.MaxBytes))
}

// memory keeps results of a bucket in this process, none of them older than the last known change of its key. It is the mirror of the hub.
//
// A stream numbers its changes without gaps and pushes them in this order, and each answer has the number of the change as of which it is
// true. An answer may be kept if all changes since are known, and are changes of other keys. By this rule, without any clock, three kinds
// of answers are refused: those of a replica that lags behind, those under way while their key was changed, and those that came while
// pushes were lost. So are answers to requests that were sent before the stream was found to be another one.
//
// It is safe for concurrent use, and returns nothing until Extend is called. The methods that are not those of a mirror do nothing on nil.
type memory struct {
	clock    *kv.Clock
	maxAge   time.Duration // the longest time for which an entry is kept
	maxBytes int64         // of keys, values, and overhead
	seed     maphash.Seed
	start    time.Time
	valid    atomic.Int64 // the time until which entries are returned
	shards   []shard
	mask     uint64

	mu      sync.Mutex // held to change the entries; locked before the mutex of a shard
	all     []*kept
	bytes   int64
	closed  bool
	era     uint64 // see kv.Hub
	history history
	stats   MemoryStats // but for Hits, Bytes and Entries
}

type shard struct {
	mu      sync.RWMutex
	entries map[string]*kept
	hits    atomic.Uint64
	_       [64]byte // padding, so that no two are on one cache line
}

// kept is an entry in memory.
type kept struct {
	Entry

	size  int64
	until int64        // since memory.start
	index int          // in memory.all
	used  atomic.Int64 // when it was, about
}

// newMemory subscribes to the changes of the bucket, and asks the leader for the sequence of the last change. It returns nil when the
// configuration keeps nothing. One round trip.
func newMemory(ctx context.Context, store *kv.Store, cfg MemoryConfig) (*memory, error) {
	if cfg.MaxBytes == 0 {
		return nil, nil
	}
	m := emptyMemory(store.Clock, cfg)
	return m, store.Hub.Feed(ctx, m)
}

func emptyMemory(clock *kv.Clock, cfg MemoryConfig) *memory {
	n := uint64(1)
	for n < 4*uint64(runtime.GOMAXPROCS(0)) {
		n *= 2
	}
	m := &memory{
		clock: clock, maxAge: cmp.Or(cfg.MaxAge, defaultMemoryAge), maxBytes: cfg.MaxBytes,
		seed: maphash.MakeSeed(), start: time.Now(), shards: make([]shard, n), mask: n - 1,
	}
	for i := range m.shards {
		m.shards[i].entries = map[string]*kept{}
	}
	return m
}

func (m *memory) hash(key string) uint64 { return maphash.String(m.seed, key) }

func (m *memory) shard(hash uint64) *shard { return &m.shards[hash&m.mask] }

func (m *memory) now() int64 { return int64(time.Since(m.start)) }

// recall returns the entry that is kept for key.
func (m *memory) recall(key string) (entry Entry, ok bool) {
	now := m.now()
	s := m.shard(m.hash(key))
	s.mu.RLock()
	e := s.entries[key]
	s.mu.RUnlock()
	if e == nil || now >= e.until || now >= m.valid.Load() {
		return entry, false
	}
	s.hits.Add(1)
	e.use(now)
	return e.Entry, true
}

// The least time between two notes of a use, so that not each reader of a popular entry writes to it.
const noteEvery = int64(time.Millisecond)

func (e *kept) use(now int64) {
	if now-e.used.Load() > noteEvery {
		e.used.Store(now)
	}
}

// remember keeps an entry from an answer or a push, if it is a result or a failure with a TTL.
func (m *memory) remember(entry Entry) {
	left := kv.MaxTTL
	if entry.TTL > 0 {
		left = m.clock.Until(entry.Created.Add(entry.TTL))
	}
	m.keep(entry, left)
}

// stored keeps an entry that this process stored by a request sent at the time sent.
func (m *memory) stored(entry Entry, sent time.Time) {
	m.keep(entry, entry.TTL-time.Since(sent))
}

// keep keeps an entry for the time that is left of it, if the entry is known to be the last of its key.
func (m *memory) keep(entry Entry, left time.Duration) {
	if entry.in().err != nil || entry.sealed || entry.marker || entry.State != Done && entry.State != Failed {
		return
	}
	entry.Key, entry.Value = strings.Clone(entry.Key), bytes.Clone(entry.Value) // copies, so that the message with them can be freed
	era := entry.in().era
	entry.inner = nil
	hash, now := m.hash(entry.Key), m.now()
	e := &kept{Entry: entry, until: now + int64(min(left, m.maxAge))}
	e.size = e.footprint()
	e.used.Store(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	if era == m.era {
		m.history.note(entry.Revision, hash)
	}
	if era != m.era || m.history.changed(hash, max(entry.asOf, entry.Revision)) {
		m.stats.Refused++
		return
	}
	s := m.shard(hash)
	if old := s.entries[entry.Key]; old != nil {
		m.remove(s, old)
	}
	if m.closed || e.until <= now || e.size > m.maxBytes {
		return
	}
	for m.bytes+e.size > m.maxBytes {
		m.evict(now)
	}
	e.index = len(m.all)
	m.all = append(m.all, e)
	m.bytes += e.size
	s.mu.Lock()
	s.entries[entry.Key] = e
	s.mu.Unlock()
}

// footprint returns the size of an entry in memory: of its texts and its value, of itself, of its place in the map, which is between seven
// sixteenths and seven eighths full, and of its place in the list, which is at least three quarters full.
func (e *kept) footprint() int64 {
	const inMap, inList = (16 + 8 + 1) * 2, 8 * 2
	texts := len(e.Key) + len(e.Value) + len(e.Reason) + len(e.Claim) + len(e.Fingerprint) + len(e.Job) + len(e.Owner)
	return int64(int(unsafe.Sizeof(*e)) + inMap + inList + texts)
}

// sample is the number of entries of which the worst is evicted.
const sample = 8

func (m *memory) evict(now int64) {
	worst := m.all[rand.IntN(len(m.all))]
	for range sample - 1 {
		e := m.all[rand.IntN(len(m.all))]
		if worst.until > now && (e.until <= now || e.used.Load() < worst.used.Load()) {
			worst = e
		}
	}
	m.remove(m.shard(m.hash(worst.Key)), worst)
}

func (m *memory) remove(s *shard, e *kept) {
	last := m.all[len(m.all)-1]
	m.all[e.index], last.index = last, e.index
	m.all[len(m.all)-1] = nil
	m.all = m.all[:len(m.all)-1]
	m.bytes -= e.size
	s.mu.Lock()
	delete(s.entries, e.Key)
	s.mu.Unlock()
}

// Pushed applies a change that the bucket pushed; the caller calls it in the order of the pushes. When earlier changes were lost,
// everything is dropped.
func (m *memory) Pushed(key string, sequence uint64) {
	hash := m.hash(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.history.onPush(sequence, hash) {
		m.flush()
	}
	m.outdate(key, hash, sequence)
}

// Changed applies a change that is known from an answer, maybe before it is pushed.
func (m *memory) Changed(key string, sequence, era uint64) {
	hash := m.hash(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	if era == m.era {
		m.history.note(sequence, hash)
		m.outdate(key, hash, sequence)
	}
}

func (m *memory) outdate(key string, hash, sequence uint64) {
	s := m.shard(hash)
	if e := s.entries[key]; e != nil && e.Revision < sequence {
		m.remove(s, e)
	}
}

// Extend allows returning entries until memoryBound after then, a time at which all changes were known.
func (m *memory) Extend(then time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.valid.Store(int64(then.Add(memoryBound).Sub(m.start)))
	}
}

// Suspend stops returning entries until Extend is called again.
func (m *memory) Suspend() { m.valid.Store(0) }

// Skip drops everything and starts over behind sequence, or behind the last pushed change, if that is later.
func (m *memory) Skip(sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history.reset(max(sequence, m.history.applied))
	m.flush()
}

// Reset begins the next era, drops everything and starts over behind sequence, ignoring earlier pushes: the stream is another one, or has
// been restored.
func (m *memory) Reset(sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.era++
	m.history.reset(sequence)
	m.flush()
}

// close drops everything; later entries are not kept.
func (m *memory) close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.valid.Store(0)
	m.flush()
}

func (m *memory) flush() {
	if len(m.all) > 0 {
		m.stats.Flushes++
	}
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.entries = map[string]*kept{}
		s.mu.Unlock()
	}
	m.all, m.bytes = nil, 0
}

// counts returns the size and the counts of the memory.
func (m *memory) counts() MemoryStats {
	if m == nil {
		return MemoryStats{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stats := m.stats
	stats.Bytes, stats.Entries = m.bytes, int64(len(m.all))
	for i := range m.shards {
		stats.Hits += m.shards[i].hits.Load()
	}
	return stats
}

// remembered is the number of last changes of the bucket whose keys are known.
const remembered = 4096

// history has the last changes of a stream. The sequences of a stream have no gaps, so missing changes are known too.
type history struct {
	applied uint64 // all changes up to this one were pushed, or no older value is kept
	highest uint64 // the last known change, maybe only from an answer
	changes [remembered]keyChange
}

// keyChange is the key that was written at a sequence.
type keyChange struct {
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
		*c = keyChange{sequence, hash}
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

// reset starts over behind sequence.
func (h *history) reset(sequence uint64) { *h = history{applied: sequence, highest: sequence} }
