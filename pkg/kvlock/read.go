package kvlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/backoff"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
)

const (
	headerMarkerReason = "Nats-Marker-Reason"
	headerOperation    = "KV-Operation"
	headerSize         = "Nats-Msg-Size"
	headerState        = "Kvlock-State"
	operationPurge     = "PURGE"
	operationDelete    = "DEL"
)

// Get reads one key. What it returns is a hint: a replica may lag behind. One round trip, or none when it is in memory.
func (f *Flight) Get(ctx context.Context, key string) (Slot, error) {
	if slot, ok := f.memory.recall(key); ok {
		return slot, nil
	}
	found, err := f.read(ctx, []string{key})
	if err != nil {
		return Slot{}, err
	}
	if err := found[0].in().err; err != nil {
		return Slot{}, err
	}
	slot, err := f.open(ctx, found[0].readable())
	f.counts.read(slot)
	f.memory.remember(slot)
	return slot, err
}

// GetMany reads keys, in their order; a key may be there twice. What it returns are hints: a replica may lag behind, and
// so only [Flight.Begin] decides. One round trip for each 512 keys that are not in memory, and one more for each 64 MB of
// values.
//
// A record that cannot be decoded is reported to the Logger once, removed, and absent. One of a newer version of this
// package is left alone, and makes the whole call fail with ErrVersion.
func (f *Flight) GetMany(ctx context.Context, keys []string) ([]Slot, error) {
	slots := make([]Slot, len(keys))
	missing, at := keys, []int(nil)
	if f.memory != nil {
		missing = make([]string, 0, len(keys))
		for i, key := range keys {
			var ok bool
			if slots[i], ok = f.memory.recall(key); !ok {
				missing, at = append(missing, key), append(at, i)
			}
		}
		if len(missing) == 0 {
			return slots, nil
		}
	}
	found, err := f.read(ctx, missing)
	if err != nil {
		return nil, err
	}
	for i, slot := range found {
		if err := slot.in().err; err != nil {
			return nil, err
		}
		if slot, err = f.open(ctx, slot.readable()); err != nil {
			return nil, err
		}
		f.counts.read(slot)
		f.memory.remember(slot)
		if at != nil {
			i = at[i]
		}
		slots[i] = slot
	}
	return slots, nil
}

// read is GetMany with failures that are gone at once still in it, for those who waited for them.
func (s *store) read(ctx context.Context, keys []string) ([]Slot, error) {
	subjects := make([]string, len(keys))
	first := make(map[string]int, len(keys)) // where each key is in keys
	for i, key := range keys {
		if err := checkKey(key); err != nil {
			return nil, err
		}
		subjects[i] = s.prefix + key
		if _, twice := first[key]; !twice {
			first[key] = i
		}
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	messages, err := s.get.Last(ctx, subjects)
	if err != nil {
		return nil, s.unavailable(ctx, "read", keys, err)
	}

	slots, asOf := make([]Slot, len(keys)), uint64(0)
	for _, m := range messages {
		asOf = max(asOf, m.AsOf)
		slot := s.slot(ctx, m)
		if i, asked := first[slot.Key]; asked && slot.Revision > slots[i].Revision {
			slots[i] = slot
		}
	}
	if len(subjects) > directget.MaxSubjects {
		asOf = 0 // they were read one part after the other
	}
	seen := time.Now()
	for i, key := range keys {
		if slots[i] = slots[first[key]]; slots[i].Revision == 0 {
			slots[i] = Slot{Key: key, asOf: asOf, seen: seen}
		}
	}
	return slots, nil
}

// ask is leader that asks until somebody answers, or the operation's time is up.
func (s *store) ask(ctx context.Context, key string) (Slot, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for wait := minSettleWait; ; wait = min(2*wait, maxSettleWait) {
		slot, err := s.leader(ctx, key)
		switch {
		case err == nil, isForeign(err):
			return slot, err
		case isPermanent(err):
			return slot, s.final("read", key, err)
		case !backoff.Pause(ctx, wait):
			return slot, s.unavailable(ctx, "read", []string{key}, err)
		}
	}
}

// leader reads a key from the stream's leader: fresher than Get, and still a hint. One round trip.
func (s *store) leader(ctx context.Context, key string) (Slot, error) {
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	m, found, err := s.get.Leader(try, s.prefix+key)
	if err != nil {
		return Slot{}, err
	}
	if !found {
		return Slot{Key: key, seen: time.Now()}, nil
	}
	slot := s.slot(ctx, m)
	return slot, slot.in().err
}

// slot decodes a stored message. A corrupt record is reported, removed, and absent.
func (s *store) slot(ctx context.Context, m directget.Message) Slot {
	slot, err := s.decode(m)
	switch {
	case isForeign(err):
		err = fmt.Errorf("kvlock: key %q in bucket %q at revision %d: %w", slot.Key, s.bucket, slot.Revision, err)
		slot.replace(func(in *inner) { in.err = err })
	case err != nil && s.kind == fenced: // without its token anybody could write
		err = fmt.Errorf("kvlock: key %q in bucket %q at revision %d: %w: %w", slot.Key, s.bucket, slot.Revision, errCorrupt, err)
		slot.replace(func(in *inner) { in.err = err })
	case err != nil:
		s.removeCorrupt(ctx, slot, err)
	}
	return slot
}

// decode reads a stored message. Purge markers are absent keys, or failures when they carry a record: [Claim.Fail]
// leaves the reason there for those who wait. After an error the slot is absent, at the revision of the message.
func (s *store) decode(m directget.Message) (Slot, error) {
	key := strings.TrimPrefix(m.Subject, s.prefix)
	absent := Slot{Key: key, Revision: m.Sequence, Created: m.Time, seen: time.Now()}
	operation := m.Header.Get(headerOperation)
	purged := operation == operationPurge && (s.kind != Absent || len(m.Data) == 0)
	if purged || operation == operationDelete || m.Header.Get(headerMarkerReason) != "" {
		return absent, nil
	}
	r, value, err := decodeRecord(m.Data)
	switch {
	case err != nil:
		return absent, err
	case s.kind != kindOf(r):
		return absent, fmt.Errorf("%w: its record is %s", ErrMismatch, r.State)
	}
	slot := r.slot(key, value, m.Sequence, m.Time)
	slot.asOf = m.AsOf
	s.clock.learn(slot.seen, m.Time)
	slot.aged = s.clock.since(m.Time, slot.seen)
	slot.marker = operation == operationPurge
	switch s.kind {
	case held:
		slot.lock, err = decodeLock(r, value)
	case fenced:
		slot.Value = value
		var fence Token
		fence, err = ParseToken(r.Claim)
		slot.replace(func(in *inner) { in.fence = fence })
	case Absent, Pending, Done, Failed:
	}
	if err != nil {
		return absent, err
	}
	return slot, nil
}

// isForeign says that a record is not ours to read: a newer version wrote it, or it is a lock where slots are, or a slot
// where locks are. It is left as it is.
func isForeign(err error) bool {
	return errors.Is(err, ErrVersion) || errors.Is(err, ErrMismatch) || errors.Is(err, errCorrupt)
}

// errCorrupt is of a record that cannot be read and is not removed.
var errCorrupt = errors.New("record is corrupt")

// removeCorrupt replaces a record that nobody can read by a marker, if it is still the same one. The marker has no TTL,
// because nobody knows how long the record would have lived: the next claim replaces it. Who removed it reports it, so
// that of many who read it at the same time one does.
func (s *store) removeCorrupt(ctx context.Context, at Slot, cause error) {
	_, err := s.publish(ctx, s.message(at.Key, at.Revision, nil, 0, true), tryTimeout)
	switch {
	case err == nil:
		s.log.ErrorContext(ctx, "kvlock: corrupt record is removed and treated as absent",
			"key", at.Key, "revision", at.Revision, "error", cause)
		s.emit(ctx, Event{Kind: EventCorrupt, Key: at.Key, Err: cause})
	case !isRefused(err):
		s.log.WarnContext(ctx, "kvlock: corrupt record is treated as absent, and stays until it is read again or the key is claimed",
			"key", at.Key, "revision", at.Revision, "error", errors.Join(cause, err))
	}
}

// unavailable explains why the server gave no answer: the caller's context, the Flight's end, or the server.
func (s *store) unavailable(ctx context.Context, op string, keys []string, err error) error {
	if cause := context.Cause(s.ended); cause != nil {
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
	if last := s.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		err = fmt.Errorf("%w (the connection was told: %w)", err, last)
	}
	s.counts.unavailable.Add(1)
	return fmt.Errorf("kvlock: %s %s in bucket %q: %w: %w", op, what, s.bucket, ErrUnavailable, err)
}
