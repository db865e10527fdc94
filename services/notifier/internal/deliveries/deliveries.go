package deliveries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// State is where a row stands.
type State string

// The states of a row.
const (
	// Pending means: it is to be sent, for the first time or again.
	Pending State = "pending"
	// Deferred means: it waits for its time, which Reason names.
	Deferred State = "deferred"
	// Sending means: the provider is being called, or its caller died.
	Sending State = "sending"
	// Sent means: the provider has taken it.
	Sent State = "sent"
	// Delivered means: the user has it.
	Delivered State = "delivered"
	// Bounced means: the address does not exist.
	Bounced State = "bounced"
	// Suppressed means: the row is not sent, on purpose.
	Suppressed State = "suppressed"
	// Failed means: it was given up.
	Failed State = "failed"
	// Split means: a row for each of the user's addresses has taken its place.
	Split State = "split"
	// Unreadable is a row in a list whose record cannot be read. No record has it.
	Unreadable State = "unreadable"
)

// Ended reports whether nothing more is done with a row in this state.
func (s State) Ended() bool {
	switch s {
	case Sent, Delivered, Bounced, Suppressed, Failed, Split, Unreadable:
		return true
	case Pending, Deferred, Sending:
	}
	return false
}

// Known reports whether there is such a state.
func (s State) Known() bool {
	return s.Ended() || s == Pending || s == Deferred || s == Sending
}

// Reasons of states, beside the kinds of channel errors.
const (
	ReasonCancelled        = "cancelled"         // suppressed: it is not to be delivered any more
	ReasonDigest           = "digest"            // suppressed: it is delivered in a digest; deferred: it is on its way into one
	ReasonEndpointDisabled = "endpoint_disabled" // suppressed: the address has failed for days
	ReasonEndpointDown     = "endpoint_down"     // pending: the address was not reached lately
	ReasonEmpty            = "empty"             // suppressed: a digest without events
	ReasonExhausted        = "exhausted"         // failed: no attempts are left
	ReasonFallbackAfter    = "fallback_after"    // failed: it was tried for as long as it may, and another channel is next
	ReasonMuted            = "muted"             // suppressed: the user does not want to be disturbed for some time
	ReasonNotBefore        = "not_before"        // deferred: the event is to be delivered later
	ReasonOptOut           = "opt_out"           // suppressed: the user does not want it
	ReasonQuietHours       = "quiet_hours"       // deferred
	ReasonRead             = "read"              // suppressed: the user has read it in the inbox, or removed it there
	ReasonRecipient        = "recipient"         // failed: the user's record in the directory cannot be read; Detail says why
	ReasonThrottled        = "throttled"         // deferred, or suppressed: the user gets no more for now
	ReasonUnknownOutcome   = "unknown_outcome"   // failed: it may have been sent, and must not be sent twice
)

// Outcomes of attempts, beside the kinds of channel errors.
const (
	OutcomeSent    = "sent"
	OutcomeUnknown = "unknown" // the sender died, or lost the connection
)

// Delivery is the record of one row.
type Delivery struct {
	// Addresses are the ids of the addresses whose rows have taken the place of this one.
	Addresses []string `json:"addresses,omitempty"`

	// Attempts are all that were made, in order. The outcome of the last is empty while it is under way.
	Attempts []Attempt `json:"attempts,omitempty"`

	// Detail says what was wrong with a row that ended without an attempt.
	Detail string `json:"detail,omitempty"`

	// Digest is the event id of the digest that delivers the row.
	Digest string `json:"digest,omitempty"`

	// Endpoint is the id of the address that was tried, "" for the plain one of the channel.
	Endpoint string `json:"endpoint,omitempty"`

	// FellBackTo is the next channel, whose row was stored because this one ended without being sent.
	FellBackTo string `json:"fell_back_to,omitempty"`

	// ProviderID is the provider's id of the message.
	ProviderID string `json:"provider_id,omitempty"`

	// AttemptsBefore is how many of the attempts were made before the last replay: they do not count as tries.
	AttemptsBefore int `json:"attempts_before,omitempty"`

	// Reason is why the row is in its state.
	Reason string `json:"reason,omitempty"`

	// Replays is how often the row was sent again on request, after it had ended.
	Replays int `json:"replays,omitempty"`

	// State is where the row stands.
	State State `json:"state"`

	// Unheard are those of the addresses on which the user was not reached, of a row that may be followed by the next channel.
	Unheard []string `json:"unheard,omitempty"`

	// Until is when a deferred row goes on, or when an attempt that is under way counts as dead.
	Until time.Time `json:"until,omitzero"`

	// UpdatedAt is when this was written.
	UpdatedAt time.Time `json:"updated_at"`

	behind bool            // the record that is there does not have the item that has come
	over   kvrecord.Record // as it was read or written, none for a row of which there is no record
}

// Tries is how many attempts count: those since the last replay.
func (d *Delivery) Tries() int { return len(d.Attempts) - d.AttemptsBefore }

// Failures is how many of the tries failed at the provider, or on the way there: not those whose caller died, lost touch, or was
// stopped.
func (d *Delivery) Failures() (n int) {
	for _, a := range d.Attempts[d.AttemptsBefore:] {
		if !a.lost() && a.Outcome != "" && a.Outcome != OutcomeSent && a.Outcome != string(channel.KindInterrupted) {
			n++
		}
	}
	return n
}

// Replay makes a row that has ended one that is to be sent again, with all the tries that a row has.
func (d *Delivery) Replay() {
	d.State, d.Reason, d.Detail, d.Until = Pending, "", "", time.Time{}
	d.AttemptsBefore = len(d.Attempts)
	d.Replays++
}

// Replaying reports whether the row is to be sent again on request, and no worker has begun to.
func (d *Delivery) Replaying() bool { return d.State == Pending && d.Replays > 0 && d.Tries() == 0 }

// Behind reports whether there is a record of the row, which does not say that its item has come.
func (d *Delivery) Behind() bool { return d.behind }

// Attempt is one try to send a row.
type Attempt struct {
	// At is when it began.
	At time.Time `json:"at"`

	// Detail is the text of the channel's error.
	Detail string `json:"detail,omitempty"`

	// Outcome is OutcomeSent, OutcomeUnknown, or a channel.Kind.
	Outcome string `json:"outcome,omitempty"`

	// TookMS is how long the call took, in milliseconds.
	TookMS int64 `json:"took_ms,omitempty"`

	// Worker is the worker that made the attempt.
	Worker string `json:"worker,omitempty"`
}

// lost reports whether the caller died before it recorded an outcome. An attempt whose channel reported an unknown outcome has
// a Detail.
func (a Attempt) lost() bool { return a.Outcome == OutcomeUnknown && a.Detail == "" }

// Keep is for how long a record stays after its last change: longer than its row, which the stream of rows keeps for 30 days and
// which cannot be sent after that.
const Keep = 40 * 24 * time.Hour

// Store keeps the records of deliveries. It is safe for concurrent use.
type Store struct {
	// Unreadable is called with each record in a list that cannot be read. It is set before the store is used. Defaults to nothing.
	Unreadable func(ctx context.Context, r kvrecord.Record, err error)

	items, records *kvrecord.Stream
}

// New returns the store. No round trip.
func New(records *kvrecord.Client) *Store {
	return &Store{
		Unreadable: func(context.Context, kvrecord.Record, error) {},
		items:      records.Bucket(contracts.BucketInbox), records: records.Bucket(contracts.BucketDeliveries),
	}
}

// Get returns the record of a row, a pending one when there is none. One round trip, two for a row of the inbox whose record has
// not ended.
func (s *Store) Get(ctx context.Context, key string) (*Delivery, error) {
	found, err := s.records.Get(ctx, s.records.Key(key))
	if err != nil {
		return nil, fmt.Errorf("deliveries: %w", err)
	}
	d, err := decode(found)
	subject := s.ItemOf(key)
	if err != nil || subject == "" || d.settled() {
		return d, err
	}
	if found, err = s.items.Get(ctx, subject); err != nil {
		return nil, fmt.Errorf("deliveries: %w", err)
	}
	if item, came := OfItem(found); came {
		d = d.delivered(item)
	}
	return d, nil
}

// GetMany returns the records of rows, by their keys. Rows without a record are left out; one whose record cannot be read is
// Unreadable. One round trip for each 512, two where there are rows of the inbox whose records have not ended.
func (s *Store) GetMany(ctx context.Context, keys []string) (map[string]*Delivery, error) {
	subjects := make([]string, len(keys))
	for i, key := range keys {
		subjects[i] = s.records.Key(key)
	}
	found, err := s.records.GetMany(ctx, subjects)
	if err != nil {
		return nil, fmt.Errorf("deliveries: %w", err)
	}
	known := make(map[string]*Delivery, len(found))
	for _, r := range found {
		known[s.keyOf(r)] = s.listed(ctx, r)
	}
	return known, s.addItems(ctx, known, keys)
}

// listed reads one record of a list, which does not hide the others when it cannot be read.
func (s *Store) listed(ctx context.Context, r kvrecord.Record) *Delivery {
	d, err := decode(r)
	if err != nil {
		s.Unreadable(ctx, r, err)
		return &Delivery{State: Unreadable, over: r}
	}
	return d
}

// Entry is a row of which something is kept.
type Entry struct {
	*Delivery

	// Key is the row's, see contracts.DeliveryKey.
	Key string

	// Revision is the position of the record among all.
	Revision uint64
}

// Scan reads the records of rows, in the order in which they were written, from a revision on: limit records at most, and 8 MiB.
// Records of events and digests count too, but are left out. read is how many there were; next is the revision to go on from, and 0
// when there is no more. One round trip, two where there are rows of the inbox that have not ended. [Store.ScanItems] has the rows
// without a record.
func (s *Store) Scan(ctx context.Context, from uint64, limit int) (entries []Entry, read int, next uint64, err error) {
	found, next, err := s.records.Scan(ctx, from, limit)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("deliveries: %w", err)
	}
	known, keys := map[string]*Delivery{}, []string(nil)
	for _, r := range found {
		key := s.keyOf(r)
		if _, err := contracts.RowOfKey(key); len(r.Data) == 0 || err != nil {
			continue
		}
		known[key], keys = s.listed(ctx, r), append(keys, key)
		entries = append(entries, Entry{Key: key, Revision: r.Revision})
	}
	if err := s.addItems(ctx, known, keys); err != nil {
		return nil, 0, 0, err
	}
	for i := range entries {
		entries[i].Delivery = known[entries[i].Key]
	}
	return entries, len(found), next, nil
}

func (s *Store) keyOf(r kvrecord.Record) string {
	return strings.TrimPrefix(r.Subject, s.records.Key(""))
}

// TakenError is returned for a write over a record that has been replaced since it was read.
type TakenError struct {
	// There is the record that is there now.
	There *Delivery
}

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("deliveries: somebody else wrote the record: it is %s now", e.There.State)
}

// Put writes a record over the one that was read. The server removes it 40 days later unless it is written again. The error is a
// [*TakenError] when another was written meanwhile. One round trip, as a rule.
func (s *Store) Put(ctx context.Context, key string, d *Delivery) error {
	d.UpdatedAt = time.Now().UTC()
	data, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("deliveries: encode: %w", err)
	}
	stored, err := s.records.Put(ctx, kvrecord.Write{Subject: s.records.Key(key), Data: data, Over: d.over, TTL: Keep})
	if conflict, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		there, err := decode(conflict.Found)
		if err != nil {
			return err
		}
		return &TakenError{There: there}
	}
	if err != nil {
		return fmt.Errorf("deliveries: %w", err)
	}
	d.over, d.behind = stored, false
	return nil
}

// decode reads a record. None, and the mark of one that was deleted, is a pending row.
func decode(found kvrecord.Record) (*Delivery, error) {
	d := Delivery{State: Pending, over: found}
	if len(found.Data) == 0 {
		return &d, nil
	}
	if err := json.Unmarshal(found.Data, &d); err != nil {
		return nil, fmt.Errorf("deliveries: record at %d: %w", found.Revision, err)
	}
	return &d, nil
}
