package flight

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// Get reads one key. The entry is a hint: the replica that answers may lag behind, without a bound: only a write, as
// in [Flight.Begin], decides.
// One round trip, or none when the entry is in memory.
func (f *Flight) Get(ctx context.Context, key string) (Entry, error) {
	if entry, ok := f.memory.recall(key); ok {
		return entry, nil
	}
	found, err := f.read(ctx, []string{key})
	if err != nil {
		return Entry{}, err
	}
	entry, err := f.shown(ctx, found[0])
	f.memory.remember(entry)
	return entry, err
}

// shown counts an entry that was read, and returns the entry as readers see it.
func (f *Flight) shown(ctx context.Context, found Entry) (Entry, error) {
	if err := found.in().err; err != nil {
		return Entry{}, err
	}
	entry, err := f.unseal(ctx, found.readable())
	f.counts.read(entry)
	return entry, err
}

// GetMany reads keys and returns their entries in the same order; a key may be given twice. The entries are hints: the
// replica that answers may lag behind, so only [Flight.Begin] decides. One round trip for each 512 keys that are not in
// memory, and one more for each 64 MB of values.
//
// A record that cannot be decoded is reported to the Logger once, removed, and returned as absent. A record of a newer version of this
// package stays, and makes the whole call fail with ErrVersion.
func (f *Flight) GetMany(ctx context.Context, keys []string) ([]Entry, error) {
	entries := make([]Entry, len(keys))
	missing, at := keys, []int(nil)
	if f.memory != nil {
		missing = nil
		for i, key := range keys {
			var ok bool
			if entries[i], ok = f.memory.recall(key); !ok {
				missing, at = append(missing, key), append(at, i)
			}
		}
		if len(missing) == 0 {
			return entries, nil
		}
	}
	found, err := f.read(ctx, missing)
	if err != nil {
		return nil, err
	}
	for i, entry := range found {
		if entry, err = f.shown(ctx, entry); err != nil {
			return nil, err
		}
		f.memory.remember(entry)
		if at != nil {
			i = at[i]
		}
		entries[i] = entry
	}
	return entries, nil
}

// read is GetMany without the memory.
func (f *Flight) read(ctx context.Context, keys []string) ([]Entry, error) {
	stored, err := f.store.Read(ctx, keys)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(keys))
	for i, e := range stored {
		entries[i] = f.entry(ctx, e)
	}
	return entries, nil
}

// List yields the entries of the keys that begin with prefix and a dot, or of all keys if prefix is "", that are pending,
// done or failed. They come in the order of their last writes. To see the owner of one key, and the start
// of its computation, [Flight.Get] is enough.
//
// A key that exists all the time is yielded at least once, and again when it is written in that time. On a cluster a replica that lags
// behind yields older entries, and may leave out a key that was written in the last moments. A record that
// cannot be read is yielded with its key and the reason. An error with an empty entry ends the iteration, as does the end of ctx.
//
// It makes no consumer, and reads 10,000 records at a time, or 8 MB.
func (f *Flight) List(ctx context.Context, prefix string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range f.store.Scan(ctx, prefix) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			entry, err := decode(&e)
			if errors.Is(err, kvlock.ErrMismatch) { // a lock, or a guarded value
				continue
			}
			shown := entry
			if err == nil {
				shown, err = f.unseal(ctx, entry.readable())
			}
			switch {
			case err != nil:
				shown = Entry{Key: entry.Key, Revision: entry.Revision, Created: entry.Created}
			case shown.State == Absent:
				continue
			}
			if !yield(shown, err) {
				return
			}
		}
	}
}

// Invalidate makes key absent, whatever it held. A computation under way loses its claim: its result, which may rest on
// outdated data, is not kept, and waiters compute again.
//
// It always writes, because a key may exist although a read shows it as absent. It leaves a marker, which expires after two minutes, or
// after twice the TTL of the replaced record. Two round trips.
func (f *Flight) Invalidate(ctx context.Context, key string) error {
	if err := kv.CheckKey(key); err != nil {
		return err
	}
	ctx, cancel := f.store.Bound(ctx)
	defer cancel()
	var unreadable error
	err := f.store.Persist(ctx, "invalidate", key, func() error {
		e, err := f.store.Leader(ctx, key)
		if err != nil {
			return err
		}
		entry := f.entry(ctx, e)
		if unreadable = entry.in().err; unreadable != nil {
			return nil //nolint:nilerr // another try would not help
		}
		return f.store.Mark(ctx, key, entry.Revision, kv.MarkerTTL(entry.TTL))
	})
	return errors.Join(unreadable, err)
}

// formatRef makes the reference of a claim.
func formatRef(id string, revision uint64, attempt int) string {
	return id + "." + strconv.FormatUint(revision, 10) + "." + strconv.Itoa(attempt)
}

// parseRef parses a reference that Ref returned. References come from outside, in messages.
func parseRef(ref string) (id string, revision uint64, attempt int, err error) {
	parts := strings.Split(ref, ".")
	if len(ref) <= 2*kv.MaxIDBytes && len(parts) == 3 && kv.IsID(parts[0]) {
		var errs [2]error
		revision, errs[0] = strconv.ParseUint(parts[1], 10, 64)
		attempt, errs[1] = strconv.Atoi(parts[2])
		if errors.Join(errs[:]...) == nil && attempt > 0 && attempt < maxAttempt {
			return parts[0], revision, attempt, nil
		}
	}
	return "", 0, 0, fmt.Errorf("%w: %.64q: want a reference that Ref of a claim or entry returned", ErrInvalidRef, ref)
}

// maxAttempt bounds the attempt in a reference that is accepted; it does not bound attempts.
const maxAttempt = 1 << 30
