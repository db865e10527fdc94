package kvlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/tier"
)

// Eviction chooses what a full memory gives up. It looks at eight results at random, and gives up the worst of them.
type Eviction uint8

const (
	// LRU gives up what was used longest ago.
	LRU Eviction = iota
	// LFU gives up what is used least often, so that many keys that are asked for once do not replace the few that are
	// asked for all the time. Half a minute without a use makes a result count as used one step less.
	LFU
)

// MemoryConfig says how many results a [Flight] keeps in the memory of its process, so that [Flight.Get],
// [Flight.GetMany] and [Flight.Do] have them without a round trip. The zero value keeps none.
//
// A result is dropped when its key changes, by a push from the bucket. A result that such a push might have overtaken on
// its way is not kept. When pushes get lost, the numbers of the next ones tell, or a question to the stream's leader that
// is asked every second, and everything is dropped. So a result is never older than 3 seconds: what was replaced,
// invalidated or purged longer ago is not returned, whatever got lost. What only MaxAge bounds is what nobody but an
// administrator can do: to remove a message or purge the stream by hand.
//
// Results end with their TTL as the server counts it, whatever this process's clock says.
//
// The price: every change of the bucket is sent to this process, and the leader answers one small request a second.
type MemoryConfig struct {
	// Eviction chooses what is given up when the memory is full. Defaults to LRU.
	Eviction Eviction

	// MaxAge bounds how long a result is kept before it is read from the bucket again. Defaults to 5 minutes.
	MaxAge time.Duration

	// MaxBytes bounds what is kept: keys, values and some 400 bytes beside for each. It is never exceeded. A result
	// that is larger is not kept. Defaults to 0: nothing is kept.
	MaxBytes int64
}

const (
	defaultMemoryAge = 5 * time.Minute

	// memoryBound is for how long the memory is believed after the leader was asked: how old a result can be.
	memoryBound = 3 * time.Second
)

func (cfg MemoryConfig) validate() error {
	var errs []error
	if cfg.Eviction > LFU {
		errs = append(errs, fmt.Errorf("kvlock: Memory.Eviction is %d: want LRU or LFU", cfg.Eviction))
	}
	if cfg.MaxAge < 0 {
		errs = append(errs, fmt.Errorf("kvlock: Memory.MaxAge is %s: want a positive duration", cfg.MaxAge))
	}
	if cfg.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("kvlock: Memory.MaxBytes is %d: want a positive number, or 0 for none", cfg.MaxBytes))
	}
	return errors.Join(errs...)
}

// memory keeps results in this process. All its methods but open do nothing on nil.
type memory struct {
	store *store
	tier  *tier.Tier[Slot]
}

// openMemory subscribes to the changes of the bucket, and asks the leader for the number of the last. One round trip.
func (s *store) openMemory(ctx context.Context, cfg MemoryConfig) error {
	if cfg.MaxBytes == 0 {
		return nil
	}
	if cfg.MaxAge == 0 {
		cfg.MaxAge = defaultMemoryAge
	}
	if s.board.source.subject == "" {
		return fmt.Errorf("kvlock: Memory needs a bucket that republishes all its changes, and bucket %q does not", s.bucket)
	}
	s.memory = &memory{store: s, tier: tier.New[Slot](tier.Config{
		Frequency: cfg.Eviction == LFU, MaxAge: cfg.MaxAge, MaxBytes: cfg.MaxBytes,
	})}
	if err := s.board.open(); err != nil {
		s.memory = nil
		return err
	}
	s.board.startChecks()
	return s.board.checks.check(ctx)
}

func (m *memory) close() {
	if m != nil {
		m.tier.Close()
	}
}

// suspend serves nothing until extend is called.
func (m *memory) suspend() {
	if m != nil {
		m.tier.Suspend()
	}
}

// extend serves what is kept for as long as the bound allows from then on: nothing that had changed was unknown.
func (m *memory) extend(then time.Time) {
	if m != nil {
		m.tier.Extend(then.Add(memoryBound))
	}
}

// skip drops everything and begins anew behind sequence, or behind the last change that was pushed.
func (m *memory) skip(sequence uint64) {
	if m != nil {
		m.tier.Skip(sequence)
	}
}

// reset drops everything and begins anew behind sequence.
func (m *memory) reset(sequence uint64) {
	if m != nil {
		m.tier.Reset(sequence)
	}
}

// recall returns what is kept of key.
func (m *memory) recall(key string) (Slot, bool) {
	if m == nil {
		return Slot{}, false
	}
	return m.tier.Get(key)
}

// remember keeps what an answer or a push said, if it is a result or a failure that is kept.
func (m *memory) remember(slot Slot) {
	if m == nil {
		return
	}
	left := maxTTL
	if slot.TTL > 0 {
		left = m.store.clock.until(slot.Created.Add(slot.TTL))
	}
	m.keep(slot, left)
}

// wrote keeps what this process stored by a request that it sent at sent.
func (m *memory) wrote(slot Slot, sent time.Time) {
	if m != nil {
		m.keep(slot, slot.TTL-time.Since(sent))
	}
}

func (m *memory) keep(slot Slot, left time.Duration) {
	if slot.in().err != nil || slot.sealed || slot.marker || slot.State != Done && slot.State != Failed {
		return
	}
	slot.Key, slot.Value = strings.Clone(slot.Key), bytes.Clone(slot.Value) // not all of the message that they are in
	size := 0
	if kept := slot.in().kept; kept != nil { // nobody asks for the rest of it any more
		slot.inner, size = &inner{kept: kept}, int(unsafe.Sizeof(inner{})+unsafe.Sizeof(*kept))
	} else {
		slot.inner = nil
	}
	m.tier.Put(tier.Item[Slot]{
		AsOf: slot.asOf, Key: slot.Key, Revision: slot.Revision, TTL: left, Value: slot,
		Size: len(slot.Value) + len(slot.Reason) + len(slot.Claim) + len(slot.Fingerprint) + len(slot.Job) + len(slot.Owner) + size,
	})
}

// changed drops what is kept of key, because the server acknowledged a write of it at revision.
func (m *memory) changed(key string, revision uint64) {
	if m != nil {
		m.tier.Changed(key, revision)
	}
}

// pushed drops what is kept of key, because the bucket says that it was written. Who cannot be told when gets nothing
// from memory until all is known again.
func (m *memory) pushed(key string, message *nats.Msg) {
	if m == nil {
		return
	}
	if sequence, err := strconv.ParseUint(message.Header.Get(jetstream.SequenceHeader), 10, 64); err == nil {
		m.tier.Pushed(key, sequence)
	}
}

// purged drops what is kept of the keys under prefix, because the mark at revision says so.
func (m *memory) purged(mark purgeMark, revision uint64) {
	if m != nil {
		m.tier.Purged(mark.keys(), mark.Before, revision)
	}
}
