package flight

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/internal/mistake"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/tier"
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
		mistake.If(cfg.MaxAge < 0, "kvlock: Memory.MaxAge is %s: want a positive duration", cfg.MaxAge),
		mistake.If(cfg.MaxBytes < 0, "kvlock: Memory.MaxBytes is %d: want a positive number, or 0 for none", cfg.MaxBytes))
}

// memory keeps results in this process: it is the mirror of the hub. The methods that are not those of a mirror do nothing on nil.
type memory struct {
	*tier.Tier[Entry]

	clock *kv.Clock
}

// newMemory subscribes to the changes of the bucket, and asks the leader for the sequence of the last change. It returns nil when the
// configuration keeps nothing. One round trip.
func newMemory(ctx context.Context, store *kv.Store, cfg MemoryConfig) (*memory, error) {
	if cfg.MaxBytes == 0 {
		return nil, nil
	}
	m := &memory{clock: store.Clock, Tier: tier.New[Entry](tier.Config{
		MaxAge: cmp.Or(cfg.MaxAge, defaultMemoryAge), MaxBytes: cfg.MaxBytes,
	})}
	return m, store.Hub.Feed(ctx, m)
}

func (m *memory) close() {
	if m != nil {
		m.Close()
	}
}

// Extend allows serving from memory until memoryBound after then, a time at which all changes were known.
func (m *memory) Extend(then time.Time) { m.Tier.Extend(then.Add(memoryBound)) }

// recall returns the entry that is kept for key.
func (m *memory) recall(key string) (entry Entry, ok bool) {
	if m == nil {
		return entry, false
	}
	return m.Get(key)
}

// remember keeps an entry from an answer or a push, if it is a result or a failure with a TTL.
func (m *memory) remember(entry Entry) {
	if m == nil {
		return
	}
	left := kv.MaxTTL
	if entry.TTL > 0 {
		left = m.clock.Until(entry.Created.Add(entry.TTL))
	}
	m.keep(entry, left)
}

// stored keeps an entry that this process stored by a request sent at the time sent.
func (m *memory) stored(entry Entry, sent time.Time) {
	if m != nil {
		m.keep(entry, entry.TTL-time.Since(sent))
	}
}

func (m *memory) keep(entry Entry, left time.Duration) {
	if entry.in().err != nil || entry.sealed || entry.marker || entry.State != Done && entry.State != Failed {
		return
	}
	entry.Key, entry.Value = strings.Clone(entry.Key), bytes.Clone(entry.Value) // copies, so that the message with them can be freed
	entry.inner = nil
	m.Put(tier.Item[Entry]{
		AsOf: entry.asOf, Key: entry.Key, Revision: entry.Revision, TTL: left, Value: entry,
		Size: len(entry.Value) + len(entry.Reason) + len(entry.Claim) + len(entry.Fingerprint) + len(entry.Job) + len(entry.Owner),
	})
}
