// Package inapp is the channel into the inbox of the application: a bucket with one key for each user and event. An item
// is unread, read or archived, and is removed when it expires.
//
// The bucket takes an item once, so that a user gets it exactly once, however often it is sent.
package inapp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// Name is the channel's name.
const Name = deliveries.Inbox

var (
	// ErrNotFound is returned for an item that does not exist, or no longer.
	ErrNotFound = errors.New("there is no such item in the inbox")

	// errEncode is returned for an item that cannot be encoded, because its payload is no JSON.
	errEncode = errors.New("inapp: encode")

	// ErrState is returned for an unknown state.
	ErrState = errors.New("items are unread, read or archived")
)

// State is the state of an item: whether the user has read or archived it.
type State string

// The states of an item.
const (
	Unread   State = "unread"
	Read     State = "read"
	Archived State = "archived"
)

// Item is one notification in the inbox of a user.
type Item struct {
	// Category is the group of messages that the user can switch off.
	Category string `json:"category,omitempty"`

	// CreatedAt is the time at which the row was planned.
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
	Priority contracts.Urgency `json:"priority,omitempty"`

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

	sent *deliveries.ItemAttempt // the attempt that delivered the item, unless a record of its row has the attempt
}

// stored is the stored form of an item.
type stored struct {
	*Item

	Sent *deliveries.ItemAttempt `json:"sent,omitempty"`
}

// Config configures an [Inbox].
type Config struct {
	// Keep is the time for which items are kept, in whole seconds. Below [deliveries.Keep] items do not take the place of the
	// records of their rows, because a row that outlives its item would get a second item. Defaults to 90 days.
	Keep time.Duration

	// Unreadable is called with each item that lists leave out because it cannot be read. Defaults to nothing.
	Unreadable func(ctx context.Context, r kvrecord.Record, err error)
}

// Inbox is the bucket of items, and the channel into it. It is safe for concurrent use.
type Inbox struct {
	cfg     Config
	js      jetstream.JetStream
	records *kvrecord.Stream

	mu     sync.Mutex
	frames map[frame][]byte // the JSON of the fields that items share
}

var _ channel.Channel = (*Inbox)(nil)

// Open binds the bucket. records stays the caller's to close. One round trip; while a cluster is not ready it tries again, for up to
// [jsretry.Wait].
func Open(ctx context.Context, js jetstream.JetStream, records *kvrecord.Client, cfg Config) (*Inbox, error) {
	cfg.Keep = cmp.Or(cfg.Keep, 90*24*time.Hour)
	if cfg.Unreadable == nil {
		cfg.Unreadable = func(context.Context, kvrecord.Record, error) {}
	}
	if cfg.Keep < time.Second || cfg.Keep%time.Second != 0 {
		return nil, fmt.Errorf("inapp: Keep is %s: want whole seconds, at least 1s", cfg.Keep)
	}
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		_, err := js.KeyValue(ctx, contracts.BucketInbox)
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return nil, fmt.Errorf("inapp: open bucket %s: %w", contracts.BucketInbox, err)
	}
	return &Inbox{cfg: cfg, js: js, records: records.Bucket(contracts.BucketInbox)}, nil
}

// Name implements [channel.Channel].
func (*Inbox) Name() string { return Name }

// Send implements [channel.Channel]. An item that was delivered before, even if the user has removed it since, counts as
// delivered. An item that was withheld is [channel.KindCancelled]. One round trip.
func (b *Inbox) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	_, err := b.send(ctx, m, nil)
	return channel.Receipt{Delivered: err == nil, ID: m.ID}, err
}

// StandsForRecords reports whether items take the place of the records of their rows, see [Config.Keep].
func (b *Inbox) StandsForRecords() bool { return b.cfg.Keep >= deliveries.Keep }

// Claim is Send for a row, which has one item. kept reports whether the item takes the place of the row's record, see [Config.Keep],
// and has an attempt: this one, or the attempt of a faster worker.
func (b *Inbox) Claim(ctx context.Context, m channel.Message, a deliveries.Attempt) (receipt channel.Receipt, kept bool, err error) {
	var sent *deliveries.ItemAttempt
	if b.StandsForRecords() {
		sent = deliveries.AttemptOf(a, m.CreatedAt)
	}
	kept, err = b.send(ctx, m, sent)
	return channel.Receipt{Delivered: err == nil, ID: m.ID}, kept, err
}

func (b *Inbox) send(ctx context.Context, m channel.Message, sent *deliveries.ItemAttempt) (kept bool, err error) {
	subject, err := b.subjectOf(m.RecipientType, m.UserID, m.EventID)
	var data []byte
	if err == nil {
		data, err = b.encode(m, sent)
	}
	if err == nil {
		_, err = b.records.Put(ctx, kvrecord.Write{Subject: subject, Data: data, TTL: b.cfg.Keep})
	}
	if conflict, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		there, came := deliveries.OfItem(conflict.Found)
		if !came {
			return false, &channel.Error{Channel: Name, Kind: channel.KindCancelled}
		}
		return len(there.Attempts) > 0, nil
	}
	switch {
	case err == nil:
		return sent != nil, nil
	case errors.Is(err, kvrecord.ErrTooLarge), errors.Is(err, errEncode), errors.Is(err, contracts.ErrTokenTooLong):
		return false, &channel.Error{Channel: Name, Kind: channel.KindRejected, Cause: err}
	case ctx.Err() != nil:
		return false, &channel.Error{Channel: Name, Kind: channel.KindTimeout, Cause: err}
	default:
		return false, &channel.Error{Channel: Name, Kind: channel.KindUnavailable, Cause: err}
	}
}

// withheld is the time for which a withheld item cannot be delivered: longer than any row can be sent.
const withheld = 40 * 24 * time.Hour

// Withhold prevents the delivery of a row's item, unless the item was delivered, and reports whether it was. Lists and feeds
// leave out the mark that it writes. One round trip.
func (b *Inbox) Withhold(ctx context.Context, n *contracts.Notification) (there bool, err error) {
	subject, err := b.subjectOf(n.RecipientType, n.UserID, n.EventID)
	if err != nil {
		return false, err
	}
	_, err = b.records.Put(ctx, kvrecord.Write{Subject: subject, Header: nats.Header{"KV-Operation": {"DEL"}}, TTL: withheld})
	if conflict, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		_, there = deliveries.OfItem(conflict.Found)
		return there, nil
	}
	return false, err
}

// put writes an item over the record that was read, with the time until it expires as TTL. Without a TTL the item
// would stay.
func (b *Inbox) put(ctx context.Context, item *Item, over kvrecord.Record) error {
	data, err := json.Marshal(stored{item, item.sent})
	if err != nil {
		return fmt.Errorf("%w: %w", errEncode, err)
	}
	left := max(time.Until(item.ExpiresAt).Round(time.Second), time.Second)
	stored, err := b.records.Put(ctx, kvrecord.Write{Subject: over.Subject, Data: data, Over: over, TTL: left})
	if err == nil {
		item.Revision = stored.Revision
	}
	return err
}

// Get returns an item. The error matches [ErrNotFound] when there is no such item. One round trip.
func (b *Inbox) Get(ctx context.Context, kind contracts.RecipientType, userID, eventID string) (Item, error) {
	subject, err := b.subjectOf(kind, userID, eventID)
	if err != nil {
		return Item{}, err
	}
	item, _, err := b.get(ctx, subject)
	return item, err
}

func (b *Inbox) get(ctx context.Context, subject string) (item Item, found kvrecord.Record, err error) {
	found, err = b.records.Get(ctx, subject)
	switch {
	case err != nil:
		return item, found, fmt.Errorf("inapp: %w", err)
	case len(found.Data) == 0:
		return item, found, fmt.Errorf("inapp: %w", ErrNotFound)
	}
	item, err = decode(subject, found.Data, found.Revision)
	return item, found, err
}

// decode reads an item. Its kind of recipient is taken from its key.
func decode(subject string, data []byte, revision uint64) (Item, error) {
	item := Item{Revision: revision}
	from := stored{Item: &item}
	if err := json.Unmarshal(data, &from); err != nil {
		return item, fmt.Errorf("inapp: %s: %w", subject, err)
	}
	item.sent = from.Sent
	kind, _, _ := strings.Cut(strings.TrimPrefix(subject, "$KV."+contracts.BucketInbox+"."), ".")
	item.RecipientType = contracts.RecipientType(kind)
	return item, nil
}

// Mark puts an item into a state, and returns the item. Of two calls at the same time the later one counts. Two round
// trips.
func (b *Inbox) Mark(ctx context.Context, kind contracts.RecipientType, userID, eventID string, state State) (Item, error) {
	if state != Unread && state != Read && state != Archived {
		return Item{}, fmt.Errorf("inapp: %w, not %.40q", ErrState, state)
	}
	subject, err := b.subjectOf(kind, userID, eventID)
	if err != nil {
		return Item{}, err
	}
	for {
		item, found, err := b.get(ctx, subject)
		if err != nil || item.State == state {
			return item, err
		}
		item.State, item.StateAt = state, time.Now().UTC()
		if err = b.put(ctx, &item, found); err == nil {
			return item, nil
		}
		if !errors.Is(err, kvrecord.ErrConflict) {
			return item, fmt.Errorf("inapp: %w", err)
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
