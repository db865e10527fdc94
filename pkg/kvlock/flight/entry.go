package flight

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// State is the state of a key.
type State uint8

// The states of a key.
const (
	// Absent: the key is not being computed and no result is kept.
	Absent State = iota
	// Pending: a process holds the claim and computes.
	Pending
	// Done: the result is there.
	Done
	// Failed: the computation failed, and the failure is kept until its TTL ends.
	Failed
)

var stateNames = []string{Absent: "absent", Pending: "pending", Done: "done", Failed: "failed"}

// String returns the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// parseState returns the state of that name: Absent when there is none.
func parseState(name string) State { return State(max(0, slices.Index(stateNames, name))) }

// Entry is the state of a key at the time of one read or push. It is a hint: the key may have changed since. Only a write that is
// conditional on Revision decides. The Value of an entry may be shared: do not write to it.
type Entry struct {
	Key      string
	State    State
	Value    []byte // the result when Done
	Reason   string // the reason of the failure, when Failed
	Revision uint64 // the last sequence of the key in the stream; 0 when the server has none

	Attempt     int       // the number of times the claim was begun or resumed
	Claim       string    // the id of the claim; it stays the same through Resume, Renew and Complete
	Created     time.Time // the time at which the server stored this revision, by the server's clock
	Fingerprint string    // that Begin was given
	HandOff     bool      // Pending, and waiting for a process that resumes it
	Job         string    // the Job in the options of Begin or Do
	Owner       string    // the instance of the Flight that wrote this revision
	TTL         time.Duration

	marker   bool          // stored as a purge marker: absent to readers, a failure to waiters for its claim
	past     bool          // a marker of a claim that the watcher has not seen
	released bool          // a marker of a claim that was given back: absent to its waiters, too
	sealed   bool          // unseal makes the Value from its origin before a caller gets the entry
	aged     time.Duration // its age when it was seen, by the server's clock
	asOf     uint64        // the sequence of the stream at which Revision was still the last
	inner    *inner        // nil when there is nothing in it
	seen     time.Time     // the time at which this process received it, monotonic
}

// inner is the rarely used part of an entry. It is separate because entries are on the stacks of all waiters. Copies of the entry share it,
// so it is replaced, never changed.
type inner struct {
	err    error    // the reason that it cannot be read: ErrVersion, or ErrMismatch for a record of another kind
	member string   // the member that holds the claim; "" when it cannot be probed
	origin *content // the stored form of the Value; nil when that is the Value itself
	server string   // the server to which the member was connected
	writer string   // the claim holder that wrote it
	era    uint64   // the era of the hub when it was asked for, or written
}

var noInner inner

// in returns the inner part, for reading only.
func (s *Entry) in() *inner {
	if s.inner == nil {
		return &noInner
	}
	return s.inner
}

// replace changes the inner part of this copy of the entry.
func (s *Entry) replace(change func(*inner)) {
	in := *s.in()
	change(&in)
	s.inner = &in
}

// Age returns the time since the server stored the entry, by the server's clock, never negative.
func (s Entry) Age() time.Duration {
	switch {
	case s.Created.IsZero():
		return 0
	case s.seen.IsZero():
		return max(0, time.Since(s.Created))
	default:
		return s.aged + time.Since(s.seen)
	}
}

// Ref returns the reference that [Flight.Resume] takes, as [Claim.Ref] of the claim's holder does. A process that reads an entry that waits
// to be resumed can publish the entry's job again. It is empty when the key is not pending.
func (s Entry) Ref() string {
	if s.State != Pending {
		return ""
	}
	return formatRef(s.Claim, s.Revision, s.Attempt)
}

// readable returns the entry as callers of reads see it: a failure that ended at once is an absent key.
func (s Entry) readable() Entry {
	if s.marker && s.State != Absent {
		return Entry{Key: s.Key, Revision: s.Revision, Created: s.Created, seen: s.seen, marker: true}
	}
	return s
}

// awaited returns the entry as the waiters for claim see it: they get its failure, unless the claim was given back.
func (s Entry) awaited(claim string) Entry {
	if s.State == Failed && s.Claim == claim && !s.released {
		return s
	}
	return s.readable()
}

// follows reports whether s is later than last.
func (s *Entry) follows(last *Entry) bool {
	return kv.Later(s.Revision, s.Created, last.Revision, last.Created)
}

// view returns the entry's view for the hub. While the claim lasts, waiters wait for its end.
func (s Entry) view() kv.View {
	return kv.View{Value: &s, Expires: kv.Expiry(s.TTL, s.aged, s.seen), Polled: s.State == Pending}
}

// mismatch returns an error when the entry belongs to another input than that with fingerprint.
func (s Entry) mismatch(fingerprint string) error {
	if s.State == Absent || s.Fingerprint == fingerprint {
		return nil
	}
	return fmt.Errorf("%w: key %q was begun with fingerprint %s, not %s",
		kvlock.ErrMismatch, s.Key, redact.Quote(s.Fingerprint), redact.Quote(fingerprint))
}

// The bounds of a caller's texts in a record. With them, a claim that could be begun can also be ended, with any reason: each byte may
// take six in JSON, and all must fit into kv.MaxLineBytes.
const (
	maxFingerprintBytes = 1 << 10
	maxJobBytes         = 128
	maxReasonBytes      = 1 << 10
)

// claimRecord is the first line of a record: JSON with the state of the key. The value follows after it.
type claimRecord struct {
	kv.Head // its Owner is unique for each claim and attempt

	Attempt     int    `json:"attempt,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	HandOff     bool   `json:"handoff,omitempty"`
	Job         string `json:"job,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Released    bool   `json:"released,omitempty"` // given back, not failed: a waiter takes over
	TTL         int64  `json:"ttl,omitempty"`      // seconds
	Value       packed `json:"value,omitzero"`     // how it is stored
	Member      string `json:"member,omitempty"`   // the member that holds the claim, and is probed
	Server      string `json:"server,omitempty"`   // the server to which the member was connected
}

// decodeRecord splits data into its first line and the value. The value aliases data. It returns ErrVersion for a
// record of a newer version, and ErrMismatch for a lock or a guarded value; after any other error the data is corrupt.
// A packed value is not opened.
func decodeRecord(data []byte) (claimRecord, []byte, error) {
	var r claimRecord
	value, err := kv.Decode(data, &r, kv.ResultStates)
	if err == nil {
		err = errors.Join(kv.CheckSeconds(r.TTL), r.Value.check())
	}
	return r, value, err
}

// entry returns the entry of a record that the server stored at revision and time created.
func (r claimRecord) entry(key string, value []byte, revision uint64, created time.Time) Entry {
	s := Entry{
		Key: key, State: parseState(r.State), Value: value, Reason: r.Reason, Revision: revision,
		Attempt: r.Attempt, Claim: r.Claim, Created: created, Fingerprint: r.Fingerprint, HandOff: r.HandOff, Job: r.Job,
		Owner: r.Instance, TTL: time.Duration(r.TTL) * time.Second, seen: time.Now(), released: r.Released,
	}
	in := &inner{member: r.Member, server: r.Server, writer: r.Owner}
	s.inner = in
	// A value that was packed is opened in the goroutine of a caller that wants it.
	switch origin := r.Value.seal(value); {
	case s.State != Done:
		s.Value = nil
	case origin != nil:
		s.Value, s.sealed, in.origin = nil, true, origin
	}
	return s
}

// decode reads a stored entry. Purge markers are absent keys, or failures when they carry a record: [Claim.Fail] leaves the reason there
// for waiters. With an error, the entry is absent, at the revision of the record.
func decode(e *kv.Entry) (Entry, error) {
	absent := Entry{Key: e.Key, Revision: e.Revision, Created: e.Created, seen: e.Seen, asOf: e.AsOf}
	if e.Deleted() {
		return absent, nil
	}
	r, value, err := decodeRecord(e.Data)
	if err != nil {
		return absent, err
	}
	entry := r.entry(e.Key, value, e.Revision, e.Created)
	entry.seen, entry.aged, entry.asOf, entry.marker, entry.inner.era = e.Seen, e.Age, e.AsOf, e.Purged(), e.Era
	return entry, nil
}

// readEntry decodes an entry that was read. A corrupt record is reported, removed, and returned as absent.
func (f *Flight) readEntry(ctx context.Context, e kv.Entry) Entry {
	entry, err := decode(&e)
	if err == nil {
		return entry
	}
	// A foreign record is in use by another program, so it stays.
	if kv.IsForeign(err) {
		err = fmt.Errorf("kvlock: key %q in bucket %q at revision %d: %w", entry.Key, f.store.Bucket, entry.Revision, err)
		entry.replace(func(in *inner) { in.err = err })
		return entry
	}
	f.removeCorrupt(ctx, entry, err)
	return entry
}

// removeCorrupt removes a record that cannot be read, and emits EventCorrupt if this call removed it.
func (f *Flight) removeCorrupt(ctx context.Context, at Entry, cause error) {
	if f.store.RemoveCorrupt(ctx, at.Key, at.Revision, cause) {
		f.emit(ctx, Event{Kind: EventCorrupt, Key: at.Key, Err: cause})
	}
}

// viewPushed and viewRead return the views of entries for the hub.
func (f *Flight) viewPushed(e kv.Entry) (kv.View, error) {
	entry, err := decode(&e)
	return entry.view(), err
}

func (f *Flight) viewRead(ctx context.Context, e kv.Entry) kv.View { return f.readEntry(ctx, e).view() }

// change is one conditional write of a record. write sets the Data and the Writer of its Change.
type change struct {
	kv.Change

	flight  *Flight
	record  claimRecord
	value   []byte // as it is stored
	opened  []byte // the same value as callers see it
	present Entry  // the entry of the key after a try that was not acknowledged
}

// write makes the change, or returns a [kv.ConflictError] when the key has another revision, that of c.present. It returns the new
// revision, and the time at which the acknowledged write was sent. One round trip; three when the outcome of the first was unknown.
func (f *Flight) write(ctx context.Context, c *change) (revision uint64, sent time.Time, err error) {
	if c.Data, err = kv.Encode(c.record, c.value); err != nil {
		return 0, time.Time{}, err
	}
	c.flight, c.Writer = f, c
	revision, sent, err = f.store.Write(ctx, c.Change)
	// present is the entry that Judge saw last. The store may have found a later revision, or written a marker.
	if conflict, ok := errors.AsType[*kv.ConflictError](err); ok {
		c.present.Revision = conflict.Revision
	}
	return revision, sent, err
}

// Judge compares a key's entry with the record of the change, for the store.
func (c *change) Judge(ctx context.Context, e kv.Entry) kv.Verdict {
	c.present = c.flight.readEntry(ctx, e)
	now := &c.present
	same := now.State == parseState(c.record.State) && now.Claim == c.record.Claim
	ours := now.in().writer != "" && now.in().writer == c.record.Owner && (now.State == Pending || same)
	return kv.Verdict{Revision: now.Revision, Ours: ours, Err: now.in().err}
}

// Pushed returns nothing: claims are read back.
func (c *change) Pushed() kv.Verdict { return kv.Verdict{} }

// Get reads one key. The entry is a hint: the replica that answers may lag behind, without a bound: only a write, as
// in [Flight.Begin], decides.
// One round trip, or none when the entry is in memory.
func (f *Flight) Get(ctx context.Context, key string) (Entry, error) {
	if f.memory != nil {
		if entry, ok := f.memory.recall(key); ok {
			return entry, nil
		}
	}
	found, err := f.read(ctx, []string{key})
	if err != nil {
		return Entry{}, err
	}
	return found[0], nil
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
	if at == nil {
		return found, nil
	}
	for i, entry := range found {
		entries[at[i]] = entry
	}
	return entries, nil
}

// read reads keys from the bucket, and keeps the results in memory. It returns the entries as readers see them.
func (f *Flight) read(ctx context.Context, keys []string) ([]Entry, error) {
	stored, err := f.store.Read(ctx, keys)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(keys))
	// All are decoded before one fails the call: corrupt records are removed whatever else was read.
	for i, e := range stored {
		entries[i] = f.readEntry(ctx, e)
	}
	for i, found := range entries {
		if err := found.in().err; err != nil {
			return nil, err
		}
		entry, err := f.unseal(ctx, found.readable())
		if entry.State == Done || entry.State == Failed {
			f.counts.hits.Add(1)
		} else {
			f.counts.misses.Add(1)
		}
		if err != nil {
			return nil, err
		}
		if f.memory != nil {
			f.memory.remember(entry)
		}
		entries[i] = entry
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
			read := entry
			if err == nil {
				read, err = f.unseal(ctx, entry.readable())
			}
			switch {
			case err != nil:
				read = Entry{Key: entry.Key, Revision: entry.Revision, Created: entry.Created}
			case read.State == Absent:
				continue
			}
			if !yield(read, err) {
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
	ctx, cancel := f.store.Bound(ctx, f.store.OpTimeout)
	defer cancel()
	var unreadable error
	err := f.store.Persist(ctx, "invalidate", key, func() error {
		e, err := f.store.Leader(ctx, key)
		if err != nil {
			return err
		}
		entry := f.readEntry(ctx, e)
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
