package kvlock

import (
	"fmt"
	"time"
)

// State is where a key stands.
type State uint8

// The states of a key.
const (
	// Absent: nobody computes the key and no result is kept.
	Absent State = iota
	// Pending: somebody holds the claim and computes.
	Pending
	// Done: the result is there.
	Done
	// Failed: the computation failed, and the failure is kept for a while.
	Failed

	// held: the key is a lock, and fenced: it belongs to a Guard. A slot never shows them.
	held
	fenced
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Absent:
		return "absent"
	case Pending:
		return "pending"
	case Done:
		return "done"
	case Failed:
		return "failed"
	case held:
		return "held"
	case fenced:
		return "fenced"
	default:
		return fmt.Sprintf("State(%d)", uint8(s))
	}
}

// Slot is what one read or push said about a key. It is a hint: by the time it is looked at the key may have moved on.
// Only a write that is conditional on Revision decides anything. The Value of a slot may be shared: it is not written to.
type Slot struct {
	Key      string
	State    State
	Value    []byte // the result when Done, and the earlier one while a result is computed anew
	Reason   string // why it failed, when Failed
	Revision uint64 // the last sequence of the key in the stream; 0 when the server has none

	Attempt     int       // how often the claim was begun or resumed, from 1
	Claim       string    // the id of the claim; it stays the same through Resume, Renew and Complete
	Created     time.Time // when the server stored this revision, by the server's clock
	Fingerprint string    // what Begin was given
	Handoff     bool      // Pending, and waiting for whoever resumes it
	Job         string    // what Begin was given, or Do
	Owner       string    // who wrote this revision: the instance of the Flight
	TTL         time.Duration
	NotFound    bool // Done or Failed with the answer that there is nothing

	marker   bool          // stored as a purge marker: absent to readers, a failure to those who waited for its claim
	past     bool          // a marker of a claim that the watcher has not seen
	released bool          // a marker of a claim that was given back: absent to those who waited, too
	sealed   bool          // the Value is to be made of its origin by open, before a caller gets the slot
	aged     time.Duration // how old it was when it was seen, by the server's clock
	asOf     uint64        // the sequence of the stream at which Revision was still the last
	earlier  time.Duration // how long before it the value in it was stored
	inner    *inner        // nil when there is nothing in it
	lock     *lockRecord   // of a lock
	seen     time.Time     // when this process learnt of it, monotonic
}

// inner is the part of a slot that few look at: slots are on the stacks of all who wait. Copies of the slot share it, so
// it is replaced, and never changed.
type inner struct {
	err    error    // why it cannot be read: ErrVersion, or ErrMismatch when it is of the other kind
	fence  Token    // of a guarded value
	kept   *kept    // nil when there is nothing in it
	member string   // whose process holds the claim; "" when nobody can find out whether it is there
	origin *content // what the Value was made of; nil when it is stored as it is
	server string   // to which the member was connected
	writer string   // the claim holder that wrote it

	replaced string // of a guarded value: what it was written over
}

var (
	noInner inner
	noKept  kept
)

// in is for reading only.
func (s *Slot) in() *inner {
	if s.inner == nil {
		return &noInner
	}
	return s.inner
}

// kept is for reading only.
func (s *Slot) kept() *kept {
	if in := s.in(); in.kept != nil {
		return in.kept
	}
	return &noKept
}

// replace changes this copy of the slot.
func (s *Slot) replace(change func(*inner)) {
	in := *s.in()
	change(&in)
	s.inner = &in
}

// Age is how long ago the server stored the slot, by the server's clock, never negative.
func (s Slot) Age() time.Duration {
	switch {
	case s.Created.IsZero():
		return 0
	case s.seen.IsZero():
		return max(0, time.Since(s.Created))
	default:
		return s.aged + time.Since(s.seen)
	}
}

// Ref returns the reference that [Flight.Resume] takes, as [Claim.Ref] of the claim's holder does: whoever reads a slot
// that waits to be resumed can send the work on its way again. It is empty when the key is not pending.
func (s Slot) Ref() string {
	if s.State != Pending {
		return ""
	}
	return formatRef(s.Claim, s.Revision, s.Attempt)
}

// readable is the slot as callers of reads see it: a failure that is gone at once is absence, and nothing of it is left.
func (s Slot) readable() Slot {
	if s.marker && s.State != Absent {
		return Slot{Key: s.Key, Revision: s.Revision, Created: s.Created, seen: s.seen, marker: true}
	}
	return s
}

// freeAt is the revision over which the key may be claimed: 0 when s is not of an absent key, and says nothing.
func (s Slot) freeAt() uint64 {
	if s.readable().State != Absent {
		return 0
	}
	return s.Revision
}

// awaited is the slot as those see it who waited for claim: its failure is theirs, unless it was given back.
func (s Slot) awaited(claim string) Slot {
	if s.State == Failed && s.Claim == claim && !s.released {
		return s
	}
	return s.readable()
}

// follows says that s is later than last. A key without a message has no revision to compare: it follows anything but
// another one without. Revisions that begin anew belong to a bucket that was deleted and made again.
func (s Slot) follows(last Slot) bool {
	switch {
	case s.Revision == 0:
		return last.Revision != 0
	case s.Revision < last.Revision:
		return s.Created.After(last.Created)
	default:
		return s.Revision > last.Revision
	}
}

// over says that the server may have removed the slot by now, as its TTL has passed.
func (s Slot) over(now time.Time) bool {
	expiry := s.expiry()
	return !expiry.IsZero() && !now.Before(expiry)
}

// mismatch says that the slot answers another input than the one with fingerprint.
func (s Slot) mismatch(fingerprint string) error {
	if s.State == Absent || s.Fingerprint == fingerprint {
		return nil
	}
	return fmt.Errorf("%w: key %q was begun with fingerprint %q, not %q", ErrMismatch, s.Key, s.Fingerprint, fingerprint)
}

// expiry is when the server removes the slot if nobody writes it, on this process's monotonic clock: never before it was
// seen.
func (s Slot) expiry() time.Time {
	if s.TTL <= 0 {
		return time.Time{}
	}
	return s.seen.Add(s.TTL - min(s.aged, s.TTL))
}

// Token orders the holders of one key: a later claim has a greater token. Writers pass it to what they write to, which
// refuses a smaller one than it has seen. Tokens of different keys are not ordered.
//
// Epoch is the time at which the bucket was created, in nanoseconds since 1970, so that tokens still grow when a bucket
// is deleted and made anew; Revision is the stream sequence at which the claim was taken.
type Token struct {
	Epoch    uint64
	Revision uint64
}

// Compare returns -1, 0 or +1 as t is before, equal to or after u.
func (t Token) Compare(u Token) int {
	switch {
	case t == u:
		return 0
	case t.Epoch < u.Epoch || t.Epoch == u.Epoch && t.Revision < u.Revision:
		return -1
	default:
		return 1
	}
}

// String returns the token as "epoch-revision".
func (t Token) String() string { return fmt.Sprintf("%d-%d", t.Epoch, t.Revision) }
