// Package inapp is the channel into the inbox of the application: a bucket with one key for each user and event. An item
// is unread, read or archived, and is removed when it expires.
//
// The item of a notification is stored in its delivery record, see the package deliveries. The record is replaced only as it was read,
// so a user gets an item exactly once, however often it is sent. Records without an item are not visible here.
package inapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// Name is the channel's name.
const Name = deliveries.Inbox

// ErrNotFound is returned for an item that does not exist, or no longer.
var ErrNotFound = errors.New("there is no such item in the inbox")

// State is the state of an item: whether the user has read or archived it.
type State string

// The states of an item.
const (
	Unread   State = "unread"
	Read     State = "read"
	Archived State = "archived"
)

// Known reports whether the state is one of the constants.
func (s State) Known() bool { return s == Unread || s == Read || s == Archived }

// Item is one notification in the inbox of a user.
type Item struct {
	// Category is the group of messages that the user can switch off.
	Category string `json:"category,omitempty"`

	// CreatedAt is the time at which the notification was planned.
	CreatedAt time.Time `json:"created_at"`

	// EventID is the id of the event, and names the item within the inbox.
	EventID string `json:"event_id"`

	// EventType is the type of the event.
	EventType string `json:"event_type"`

	// ExpiresAt is the time at which the item is removed.
	ExpiresAt time.Time `json:"expires_at"`

	// ID is the id of the message.
	ID string `json:"id"`

	// Locale is the user's language, a BCP 47 tag.
	Locale string `json:"locale,omitempty"`

	// Payload is the payload of the event.
	Payload json.RawMessage `json:"payload,omitempty"`

	// Priority is the urgency.
	Priority string `json:"priority,omitempty"`

	// RecipientType is the kind of recipient as which the user is notified.
	RecipientType contracts.RecipientType `json:"recipient_type"`

	// State is the state of the item.
	State State `json:"state"`

	// StateAt is the time of the last change of State.
	StateAt time.Time `json:"state_at"`

	// Template names the text.
	Template string `json:"template,omitempty"`

	// Revision grows with each change of any item.
	Revision uint64 `json:"-"`
}

// stored is the record that has an item.
type stored struct {
	Item *Item `json:"item"`

	// Sent and Delivery describe the delivery. The package deliveries reads them.
	Sent     json.RawMessage `json:"sent,omitempty"`
	Delivery json.RawMessage `json:"delivery,omitempty"`
}

// Inbox is the bucket of items, and the channel into it. It is safe for concurrent use.
type Inbox struct {
	js      jetstream.JetStream
	records *kvrecord.Stream
	store   *deliveries.Store

	mu     sync.Mutex
	frames map[frame][]byte // the JSON of the fields that items share
}

var _ channel.Channel = (*Inbox)(nil)

// New returns the inboxes of the bucket. records stays the caller's to close. store, which says how long items are kept and is called
// with those that lists leave out because they cannot be read, defaults to [deliveries.New]. No round trip.
func New(js jetstream.JetStream, records *kvrecord.Client, store *deliveries.Store) *Inbox {
	if store == nil {
		store = deliveries.New(records)
	}
	return &Inbox{js: js, records: records.Bucket(contracts.BucketInbox), store: store}
}

// Name implements [channel.Channel].
func (*Inbox) Name() string { return Name }

// Send implements [channel.Channel] for a message that has no delivery record: it stores an item with such a record. An item that is
// there, or that the user has removed, counts as delivered. One round trip.
func (b *Inbox) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	key, err := keys.Of(&contracts.Notification{EventID: m.EventID, Channel: Name, RecipientType: m.RecipientType, UserID: m.UserID})
	if err != nil {
		return channel.Receipt{}, &channel.Error{Channel: Name, Kind: channel.KindRejected, Cause: err}
	}
	d := deliveries.Delivery{AtOnce: true, Attempts: []deliveries.Attempt{{At: time.Now()}}, State: deliveries.Delivered}
	if d.Item, err = b.Item(m); err == nil {
		err = b.store.Put(ctx, key, &d)
	}
	if taken, ok := errors.AsType[*deliveries.TakenError](err); ok && taken.There.State == deliveries.Delivered {
		err = nil
	}
	if err != nil {
		return channel.Receipt{}, deliveries.ItemFailure(ctx, err)
	}
	return channel.Receipt{Delivered: true, ID: m.ID}, nil
}

// put writes an item over the record that was read, with the time until it expires as TTL. Without a TTL the item
// would stay.
func (b *Inbox) put(ctx context.Context, record stored, over kvrecord.Record) error {
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	left := max(time.Until(record.Item.ExpiresAt).Round(time.Second), time.Second)
	written, err := b.records.Put(ctx, kvrecord.Write{Subject: over.Subject, Data: data, Over: over, TTL: left})
	if err == nil {
		record.Item.Revision = written.Revision
	}
	return err
}

// Get returns an item. The error matches [ErrNotFound] when there is no such item. One round trip.
func (b *Inbox) Get(ctx context.Context, kind contracts.RecipientType, userID, eventID string) (Item, error) {
	subject, err := b.subjectOf(kind, userID, eventID)
	if err != nil {
		return Item{}, err
	}
	record, _, err := b.get(ctx, subject)
	return *record.Item, err
}

// Seen reports whether a user has read, archived or removed an item. One round trip.
func (b *Inbox) Seen(ctx context.Context, kind contracts.RecipientType, userID, eventID string) (bool, error) {
	subject, err := b.subjectOf(kind, userID, eventID)
	if err != nil {
		return false, err
	}
	record, found, err := b.get(ctx, subject)
	if errors.Is(err, ErrNotFound) {
		return found.Header.Get("KV-Operation") != "", nil // an item that has expired has no such header
	}
	return record.Item.State != Unread, err
}

func (b *Inbox) get(ctx context.Context, subject string) (record stored, found kvrecord.Record, err error) {
	found, err = b.records.Get(ctx, subject)
	if err != nil {
		return stored{Item: &Item{}}, found, fmt.Errorf("inapp: %w", err)
	}
	record, err = decode(subject, found.Data, found.Revision)
	return record, found, err
}

// decode reads a record. Its Item is never nil. The error matches [ErrNotFound] for a record without an item. The kind of recipient is
// taken from the key.
func decode(subject string, data []byte, revision uint64) (stored, error) {
	var record stored
	if len(data) > 0 {
		if err := json.Unmarshal(data, &record); err != nil {
			return stored{Item: &Item{}}, fmt.Errorf("inapp: %s: %w", subject, err)
		}
	}
	if record.Item == nil {
		return stored{Item: &Item{}}, fmt.Errorf("inapp: %w", ErrNotFound)
	}
	kind, _, _ := strings.Cut(strings.TrimPrefix(subject, "$KV."+contracts.BucketInbox+"."), ".")
	record.Item.RecipientType, record.Item.Revision = contracts.RecipientType(kind), revision
	return record, nil
}

// Mark puts an item into a state, and returns the item. Of two calls at the same time the later one counts. Two round
// trips.
func (b *Inbox) Mark(ctx context.Context, kind contracts.RecipientType, userID, eventID string, state State) (Item, error) {
	subject, err := b.subjectOf(kind, userID, eventID)
	if err != nil {
		return Item{}, err
	}
	for {
		record, found, err := b.get(ctx, subject)
		item := record.Item
		if err != nil || item.State == state {
			return *item, err
		}
		item.State, item.StateAt = state, time.Now().UTC()
		if err = b.put(ctx, record, found); err == nil {
			return *item, nil
		}
		if !errors.Is(err, kvrecord.ErrConflict) {
			return *item, fmt.Errorf("inapp: %w", err)
		}
	}
}

func (b *Inbox) subjectOf(kind contracts.RecipientType, userID, eventID string) (string, error) {
	key, err := contracts.InboxKey(kind, userID, eventID)
	if err != nil {
		return "", fmt.Errorf("inapp: %w", err)
	}
	return b.records.Key(key), nil
}

// markedAtOnce is the number of unread items that MarkAll reads at a time when no events are named.
const markedAtOnce = 1000

// MarkAny is Mark, and when kind is "" it takes the first item of the event for any kind of recipient. Then it reads the
// whole inbox.
func (b *Inbox) MarkAny(ctx context.Context, kind contracts.RecipientType, userID, eventID string, state State) (Item, error) {
	if kind != "" {
		return b.Mark(ctx, kind, userID, eventID, state)
	}
	for item, err := range b.items(ctx, "", userID) {
		if err != nil {
			return Item{}, err
		}
		if item.EventID == eventID {
			return b.Mark(ctx, item.RecipientType, userID, eventID, state)
		}
	}
	return Item{}, fmt.Errorf("inapp: %w", ErrNotFound)
}

// MarkAll puts the items of events into a state, or all unread items when events is empty, and returns the number of
// changed items. It leaves out items that do not exist. Two round trips for each item.
func (b *Inbox) MarkAll(ctx context.Context, kind contracts.RecipientType, userID string, events []string, state State) (int, error) {
	changed := 0
	for {
		var items []Item
		for item, err := range b.items(ctx, kind, userID) {
			if err != nil {
				return changed, err
			}
			if item.State == state || len(events) > 0 && !slices.Contains(events, item.EventID) || len(events) == 0 && item.State != Unread {
				continue
			}
			if items = append(items, item); len(items) == markedAtOnce {
				break
			}
		}
		for _, item := range items {
			_, err := b.Mark(ctx, item.RecipientType, userID, item.EventID, state)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return changed, err
			}
			changed++
		}
		if len(items) < markedAtOnce {
			return changed, nil
		}
	}
}
