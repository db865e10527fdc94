package kvlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
)

const (
	headerMarkerReason = "Nats-Marker-Reason"
	headerOperation    = "KV-Operation"
	operationPurge     = "PURGE"
	operationDelete    = "DEL"
)

// Get reads one key. What it returns is a hint: a replica may lag behind. One round trip.
func (f *Flight) Get(ctx context.Context, key string) (Slot, error) {
	slots, err := f.GetMany(ctx, []string{key})
	if err != nil {
		return Slot{}, err
	}
	return slots[0], nil
}

// GetMany reads keys, in their order; a key may be there twice. What it returns are hints: a replica may lag behind, and
// so only [Flight.Begin] decides. One round trip for each 512 keys, and one more for each 64 MB of values.
//
// A record that cannot be decoded is reported to the Logger once, removed, and absent. One of a newer version of this
// package is left alone, and makes the whole call fail with ErrVersion.
func (f *Flight) GetMany(ctx context.Context, keys []string) ([]Slot, error) {
	slots, err := f.read(ctx, keys)
	if err != nil {
		return nil, err
	}
	for i := range slots {
		if slots[i].err != nil {
			return nil, slots[i].err
		}
		slots[i] = slots[i].readable()
	}
	return slots, nil
}

// read is GetMany with failures that are gone at once still in it, for those who waited for them.
func (f *Flight) read(ctx context.Context, keys []string) ([]Slot, error) {
	subjects := make([]string, len(keys))
	first := make(map[string]int, len(keys)) // where each key is in keys
	for i, key := range keys {
		if err := checkKey(key); err != nil {
			return nil, err
		}
		subjects[i] = f.prefix + key
		if _, twice := first[key]; !twice {
			first[key] = i
		}
	}
	ctx, cancel := f.bound(ctx)
	defer cancel()
	messages, err := f.get.Last(ctx, subjects)
	if err != nil {
		return nil, f.unavailable(ctx, "read", keys, err)
	}

	slots := make([]Slot, len(keys))
	for _, m := range messages {
		slot := f.slot(ctx, m)
		if i, asked := first[slot.Key]; asked && slot.Revision > slots[i].Revision {
			slots[i] = slot
		}
	}
	seen := time.Now()
	for i, key := range keys {
		if slots[i] = slots[first[key]]; slots[i].Revision == 0 {
			slots[i] = Slot{Key: key, seen: seen}
		}
	}
	return slots, nil
}

// leader reads a key from the stream's leader: fresher than Get, and still a hint. One round trip.
func (f *Flight) leader(ctx context.Context, key string) (Slot, error) {
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	m, found, err := f.get.Leader(try, f.prefix+key)
	if err != nil {
		return Slot{}, err
	}
	if !found {
		return Slot{Key: key, seen: time.Now()}, nil
	}
	slot := f.slot(ctx, m)
	return slot, slot.err
}

// slot decodes a stored message. A corrupt record is reported, removed, and absent.
func (f *Flight) slot(ctx context.Context, m directget.Message) Slot {
	slot, err := f.decode(m)
	switch {
	case errors.Is(err, ErrVersion):
		slot.err = fmt.Errorf("kvlock: key %q in bucket %q at revision %d: %w", slot.Key, f.cfg.Bucket, slot.Revision, err)
	case err != nil:
		f.removeCorrupt(ctx, slot, err)
	}
	return slot
}

// decode reads a stored message. Purge markers are absent keys, or failures when they carry a record: [Claim.Fail]
// leaves the reason there for those who wait. After an error the slot is absent, at the revision of the message.
func (f *Flight) decode(m directget.Message) (Slot, error) {
	key := strings.TrimPrefix(m.Subject, f.prefix)
	absent := Slot{Key: key, Revision: m.Sequence, Created: m.Time, seen: time.Now()}
	operation := m.Header.Get(headerOperation)
	if operation == operationDelete || operation == operationPurge && len(m.Data) == 0 || m.Header.Get(headerMarkerReason) != "" {
		return absent, nil
	}
	r, value, err := decodeRecord(m.Data)
	if err != nil {
		return absent, err
	}
	slot := r.slot(key, value, m.Sequence, m.Time)
	slot.marker = operation == operationPurge
	return slot, nil
}

// removeCorrupt replaces a record that nobody can read by a marker, if it is still the same one. The marker has no TTL,
// because nobody knows how long the record would have lived: the next claim replaces it.
func (f *Flight) removeCorrupt(ctx context.Context, at Slot, cause error) {
	f.log.ErrorContext(ctx, "kvlock: corrupt record is removed and treated as absent",
		"key", at.Key, "revision", at.Revision, "error", cause)
	if _, err := f.publish(ctx, f.message(at.Key, at.Revision, nil, 0, true)); err != nil && !isRefused(err) {
		f.log.WarnContext(ctx, "kvlock: corrupt record stays until the key is claimed", "key", at.Key, "error", err)
	}
}

// unavailable explains why the server gave no answer: the caller's context, the Flight's end, or the server.
func (f *Flight) unavailable(ctx context.Context, op string, keys []string, err error) error {
	if cause := context.Cause(f.ended); cause != nil {
		return cause
	}
	what := fmt.Sprintf("%d keys", len(keys))
	if len(keys) == 1 {
		what = fmt.Sprintf("%q", keys[0])
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("kvlock: %s %s: %w: %w", op, what, context.Cause(ctx), err)
	}
	// The server does not answer what it does not permit. It only tells the connection.
	if last := f.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		err = fmt.Errorf("%w (the connection was told: %w)", err, last)
	}
	return fmt.Errorf("kvlock: %s %s in bucket %q: %w: %w", op, what, f.cfg.Bucket, ErrUnavailable, err)
}
