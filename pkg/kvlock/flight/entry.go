package flight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/expediter-io/expediter/internal/shown"
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

// freeAt returns the revision over which the key may be claimed, by the knowledge of s: 0 when the key of s is not absent.
func (s Entry) freeAt() uint64 {
	if s.readable().State != Absent {
		return 0
	}
	return s.Revision
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
		kvlock.ErrMismatch, s.Key, shown.Quote(s.Fingerprint), shown.Quote(fingerprint))
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
	switch origin := r.Value.content(value); {
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

// entry decodes a stored entry. A corrupt record is reported, removed, and returned as absent.
func (f *Flight) entry(ctx context.Context, e kv.Entry) Entry {
	entry, err := decode(&e)
	switch {
	case kv.IsForeign(err):
		err = fmt.Errorf("kvlock: key %q in bucket %q at revision %d: %w", entry.Key, f.store.Bucket, entry.Revision, err)
		entry.replace(func(in *inner) { in.err = err })
	case err != nil:
		f.removeCorrupt(ctx, entry, err)
	}
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

func (f *Flight) viewRead(ctx context.Context, e kv.Entry) kv.View { return f.entry(ctx, e).view() }

// change is one conditional write of a record. write sets the Data and the Writer of its Change.
type change struct {
	kv.Change

	flight *Flight
	record claimRecord
	value  []byte // as it is stored
	opened []byte // the same value as callers see it
	found  Entry  // the entry that was found after a try that was not acknowledged
}

// write makes the change, or returns a [kv.ConflictError] when the key has another revision, that of c.found. It returns the new revision,
// and the time at which the acknowledged write was sent. One round trip; three when the outcome of the first was unknown.
func (f *Flight) write(ctx context.Context, c *change) (revision uint64, sent time.Time, err error) {
	if c.Data, err = kv.Encode(c.record, c.value); err != nil {
		return 0, time.Time{}, err
	}
	c.flight, c.Writer = f, c
	revision, sent, err = f.store.Write(ctx, c.Change)
	if conflict, ok := errors.AsType[*kv.ConflictError](err); ok {
		c.found.Revision = conflict.Revision
	}
	return revision, sent, err
}

// Found compares a key's entry with the record of the change, for the store.
func (c *change) Found(ctx context.Context, e kv.Entry) kv.Found {
	c.found = c.flight.entry(ctx, e)
	now := &c.found
	same := now.State == parseState(c.record.State) && now.Claim == c.record.Claim
	ours := now.in().writer != "" && now.in().writer == c.record.Owner && (now.State == Pending || same)
	return kv.Found{Revision: now.Revision, Ours: ours, Err: now.in().err}
}

// Pushed returns nothing: claims are read back.
func (c *change) Pushed() kv.Found { return kv.Found{} }
