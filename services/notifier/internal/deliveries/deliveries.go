package deliveries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// State is the state of a notification.
type State string

// The states of a notification.
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
	// Suppressed means: the notification is not sent, on purpose.
	Suppressed State = "suppressed"
	// Failed means: the notification was given up.
	Failed State = "failed"
	// Split means: a notification for each of the user's addresses has taken its place.
	Split State = "split"
	// Unreadable is a notification in a list whose record cannot be read. No record has it.
	Unreadable State = "unreadable"
)

// Ended reports whether the state is final.
func (s State) Ended() bool {
	switch s {
	case Sent, Delivered, Bounced, Suppressed, Failed, Split, Unreadable:
		return true
	case Pending, Deferred, Sending:
	}
	return false
}

// Known reports whether the state is one of the constants.
func (s State) Known() bool {
	return s.Ended() || s == Pending || s == Deferred || s == Sending
}

// Reasons of states, in addition to the kinds of channel errors.
const (
	ReasonCancelled        = "cancelled"         // suppressed: the event was cancelled
	ReasonDigest           = "digest"            // suppressed: it is delivered in a digest; deferred: it is being put into one
	ReasonEndpointDisabled = "endpoint_disabled" // suppressed: the address has failed for days
	ReasonEndpointDown     = "endpoint_down"     // pending: the address was not reached lately
	ReasonEmpty            = "empty"             // suppressed: a digest without events
	ReasonErased           = "erased"            // suppressed: the data of the user was erased
	ReasonExhausted        = "exhausted"         // failed: no attempts are left
	ReasonFallbackAfter    = "fallback_after"    // failed: the time for this channel is over, and another channel is next
	ReasonMuted            = "muted"             // suppressed: the user does not want to be disturbed for some time
	ReasonNotBefore        = "not_before"        // deferred: the event is to be delivered later
	ReasonOptOut           = "opt_out"           // suppressed: the user has opted out
	ReasonQuietHours       = "quiet_hours"       // deferred
	ReasonRead             = "read"              // suppressed: the user has read or removed the item in the inbox
	ReasonRecipient        = "recipient"         // failed: the user's record in the directory cannot be read; Detail has the error
	ReasonThrottled        = "throttled"         // deferred, or suppressed: the user gets no more for now
	ReasonUnknownOutcome   = "unknown_outcome"   // failed: the message may have been sent, and must not be sent twice
)

// Outcomes of attempts, in addition to the kinds of channel errors.
const (
	OutcomeSent    = "sent"
	OutcomeUnknown = "unknown" // the sender died, or lost the connection
)

// Delivery is the record of one notification.
type Delivery struct {
	// Addresses are the ids of the addresses whose notifications have taken the place of this notification.
	Addresses []string `json:"addresses,omitempty"`

	// Attempts are all attempts, in order. The outcome of the last is empty while it is under way.
	Attempts []Attempt `json:"attempts,omitempty"`

	// Detail describes the failure of a notification that ended without an attempt.
	Detail string `json:"detail,omitempty"`

	// Digest is the event id of the digest that delivers the notification.
	Digest string `json:"digest,omitempty"`

	// Endpoint is the id of the address that was tried, "" for the plain address.
	Endpoint string `json:"endpoint,omitempty"`

	// FellBackTo is the next channel, whose notification was stored because this notification ended without being sent.
	FellBackTo string `json:"fell_back_to,omitempty"`

	// ProviderID is the provider's id of the message.
	ProviderID string `json:"provider_id,omitempty"`

	// AttemptsBefore is the number of attempts before the last replay. They do not count any more.
	AttemptsBefore int `json:"attempts_before,omitempty"`

	// Reason is the reason for the state.
	Reason string `json:"reason,omitempty"`

	// Replays is the number of times that the notification, after it had ended, was sent again on request.
	Replays int `json:"replays,omitempty"`

	// State is the state of the notification.
	State State `json:"state"`

	// Unheard are the addresses, of a split notification with a next channel, on which the user was not reached.
	Unheard []string `json:"unheard,omitempty"`

	// Until is the time at which a deferred notification continues, or at which an attempt under way counts as dead.
	Until time.Time `json:"until,omitzero"`

	// UpdatedAt is the time at which the record was written.
	UpdatedAt time.Time `json:"updated_at"`

	// AtOnce means that the item was delivered when the plan was expanded, and that the notification is in no stream.
	AtOnce bool `json:"-"`

	// Item is the item of a notification of the inbox, as JSON. It is empty until the notification is delivered.
	Item json.RawMessage `json:"-"`

	over kvrecord.Record // as last read or written; empty for a notification without a record
}

// Tries returns the number of attempts since the last replay.
func (d *Delivery) Tries() int { return len(d.Attempts) - d.AttemptsBefore }

// Failures returns the number of attempts since the last replay that failed at the provider, or on the way there. Attempts whose
// caller died, lost its connection, or was stopped do not count.
func (d *Delivery) Failures() (n int) {
	for _, a := range d.Attempts[d.AttemptsBefore:] {
		if !a.lost() && a.Outcome != "" && a.Outcome != OutcomeSent && a.Outcome != string(channel.KindInterrupted) {
			n++
		}
	}
	return n
}

// Replay makes an ended notification pending again, with all its attempts.
func (d *Delivery) Replay() {
	d.State, d.Reason, d.Detail, d.Until = Pending, "", "", time.Time{}
	d.AttemptsBefore = len(d.Attempts)
	d.Replays++
}

// Replaying reports whether the notification is to be sent again on request, and no worker has begun.
func (d *Delivery) Replaying() bool { return d.State == Pending && d.Replays > 0 && d.Tries() == 0 }

// Attempt is one attempt to send a notification.
type Attempt struct {
	// At is the time at which the attempt began.
	At time.Time `json:"at"`

	// Detail is the text of the channel's error.
	Detail string `json:"detail,omitempty"`

	// Outcome is OutcomeSent, OutcomeUnknown, or a channel.Kind.
	Outcome string `json:"outcome,omitempty"`

	// TookMS is the duration of the call, in milliseconds.
	TookMS int64 `json:"took_ms,omitempty"`

	// Worker is the worker that made the attempt.
	Worker string `json:"worker,omitempty"`
}

// lost reports whether the caller died before it recorded an outcome. An attempt whose channel reported an unknown outcome has
// a Detail.
func (a Attempt) lost() bool { return a.Outcome == OutcomeUnknown && a.Detail == "" }

// Keep is the time for which a record stays after its last change: longer than its notification, which the stream keeps for 30 days and
// which cannot be sent after that.
const Keep = 40 * 24 * time.Hour

// Store keeps the records of deliveries. The record of a notification of the inbox is stored in its item, at the key of the item, so
// that one conditional write delivers the item and records that. Any other record is stored in the bucket of deliveries. It is safe for
// concurrent use.
type Store struct {
	// ItemKeep is the time for which items are kept: at least Keep, since a notification that outlives its item could be delivered
	// again. It is set before the store is used. Defaults to 90 days.
	ItemKeep time.Duration

	// Unreadable is called with each record in a list that cannot be read. It is set before the store is used. Defaults to nothing.
	Unreadable func(ctx context.Context, r kvrecord.Record, err error)

	items, records *kvrecord.Stream
}

// New returns the store. No round trip.
func New(records *kvrecord.Client) *Store {
	return &Store{
		ItemKeep: ItemKeep, Unreadable: func(context.Context, kvrecord.Record, error) {},
		items: records.Bucket(contracts.BucketInbox), records: records.Bucket(contracts.BucketDeliveries),
	}
}

// at returns the bucket and the subject of a notification's record.
func (s *Store) at(key string) (*kvrecord.Stream, string) {
	if subject := ItemSubject(key); subject != "" {
		return s.items, subject
	}
	return s.records, s.records.Key(key)
}

// keyOf returns the key of the notification of a record.
func (s *Store) keyOf(r kvrecord.Record) string {
	if key, ok := strings.CutPrefix(r.Subject, s.records.Key("")); ok {
		return key
	}
	return keyOfItem(r.Subject)
}

// Get returns the record of a notification, or a pending delivery when there is none. One round trip.
func (s *Store) Get(ctx context.Context, key string) (*Delivery, error) {
	bucket, subject := s.at(key)
	found, err := bucket.Get(ctx, subject)
	if err != nil {
		return nil, fmt.Errorf("deliveries: %w", err)
	}
	return s.decode(found)
}

// recordsAtOnce is the number of records that are read in one round trip.
const recordsAtOnce = 512

// GetMany returns the records of notifications, by their keys. Notifications without a record are left out. A notification whose record
// cannot be read is Unreadable. One round trip for each 512, and for each ItemsAtOnce notifications of the inbox.
func (s *Store) GetMany(ctx context.Context, of []string) (map[string]*Delivery, error) {
	subjects := map[*kvrecord.Stream][]string{}
	for _, key := range of {
		bucket, subject := s.at(key)
		subjects[bucket] = append(subjects[bucket], subject)
	}
	known := make(map[string]*Delivery, len(of))
	for bucket, all := range subjects {
		atOnce := recordsAtOnce
		if bucket == s.items {
			atOnce = ItemsAtOnce
		}
		for some := range slices.Chunk(all, atOnce) {
			found, err := bucket.GetMany(ctx, some)
			if err != nil {
				return nil, fmt.Errorf("deliveries: %w", err)
			}
			for _, r := range found {
				known[s.keyOf(r)] = s.listed(ctx, r)
			}
		}
	}
	return known, nil
}

// listed reads one record of a list. A record that cannot be read becomes an Unreadable delivery.
func (s *Store) listed(ctx context.Context, r kvrecord.Record) *Delivery {
	d, err := s.decode(r)
	if err != nil {
		s.Unreadable(ctx, r, err)
		return &Delivery{State: Unreadable, over: r}
	}
	return d
}

// Entry is a notification with a record.
type Entry struct {
	*Delivery

	// Key is the key of the notification, see keys.Of.
	Key string

	// Revision is the revision of the record.
	Revision uint64
}

// Scan reads the records of the notifications of all channels but the inbox, in the order in which they were written, from a revision
// on: limit records at most, and 8 MiB. Records of events and digests count too, but are left out. read is the number of records; next
// is the revision from which to continue, 0 at the end. One round trip.
func (s *Store) Scan(ctx context.Context, from uint64, limit int) (entries []Entry, read int, next uint64, err error) {
	return s.scan(ctx, s.records, from, limit)
}

// ScanItems is Scan for the notifications of the inbox, in the order in which their records were written or their items marked.
func (s *Store) ScanItems(ctx context.Context, from uint64, limit int) (entries []Entry, read int, next uint64, err error) {
	return s.scan(ctx, s.items, from, limit)
}

func (s *Store) scan(ctx context.Context, in *kvrecord.Stream, from uint64, limit int) (entries []Entry, read int, next uint64, err error) {
	found, next, err := in.Scan(ctx, from, limit)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("deliveries: %w", err)
	}
	for _, r := range found {
		key := s.keyOf(r)
		if _, err := keys.Parse(key); len(r.Data) > 0 && err == nil {
			entries = append(entries, Entry{Delivery: s.listed(ctx, r), Key: key, Revision: r.Revision})
		}
	}
	return entries, len(found), next, nil
}

// TakenError is returned for a write over a record that has been replaced since it was read.
type TakenError struct {
	// There is the present record.
	There *Delivery
}

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("deliveries: somebody else wrote the record: it is %s now", e.There.State)
}

// Put writes a record over the one that was read. The server removes the record 40 days after its last write, and an item after
// ItemKeep. The error is a [*TakenError] when another record was written in the meantime. Usually one round trip.
func (s *Store) Put(ctx context.Context, key string, d *Delivery) error {
	bucket, subject := s.at(key)
	d.UpdatedAt = time.Now().UTC()
	var data []byte
	var err error
	if bucket == s.items {
		data, err = d.encodeItem()
	} else {
		data, err = json.Marshal(d)
	}
	// A notification that outlives its item could be delivered again, so items are kept longer.
	ttl := Keep
	if len(d.Item) > 0 {
		ttl = s.ItemKeep
	}
	if err != nil {
		return fmt.Errorf("deliveries: encode: %w", err)
	}
	stored, err := bucket.Put(ctx, kvrecord.Write{Subject: subject, Data: data, Over: d.over, TTL: ttl})
	if conflict, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		// The caller decides from the record that is there now, so no second read is needed.
		there, err := s.decode(conflict.Found)
		if err != nil {
			return err
		}
		return &TakenError{There: there}
	}
	if err != nil {
		return fmt.Errorf("deliveries: %w", err)
	}
	d.over = stored
	return nil
}

// decode reads a record. A missing or deleted record is a pending delivery.
func (s *Store) decode(found kvrecord.Record) (*Delivery, error) {
	d := &Delivery{State: Pending}
	var err error
	switch isItem := !strings.HasPrefix(found.Subject, s.records.Key("")); {
	case isItem:
		d, err = decodeItem(found)
	case len(found.Data) > 0:
		err = json.Unmarshal(found.Data, d)
	}
	if err != nil {
		return nil, fmt.Errorf("deliveries: record at %d of %s: %w", found.Revision, found.Subject, err)
	}
	d.over = found
	return d, nil
}
