package deliveries

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Inbox is the name of the channel whose items take the place of the records of their rows. A row that is delivered at its first
// attempt has no record: the item has the attempt, and is kept for longer than the row.
const Inbox = "inapp"

// ItemsAtOnce is the number of items that are read at a time. Each may have the payload of an event, up to 768 KiB.
const ItemsAtOnce = 64

// Item has the fields of an item of the inbox that concern its row.
type Item struct {
	// Category, EventType, Priority and Template are fields of the row.
	Category  string            `json:"category,omitempty"`
	EventType string            `json:"event_type"`
	Priority  contracts.Urgency `json:"priority,omitempty"`
	Template  string            `json:"template,omitempty"`

	// CreatedAt is the time at which the row was planned.
	CreatedAt time.Time `json:"created_at"`

	// ID is the id of the message.
	ID string `json:"id"`

	// Sent is the attempt that delivered the item, nil when a record of the row has the attempt.
	Sent *ItemAttempt `json:"sent,omitempty"`
}

// ItemAttempt is an attempt in the form of an item, which is short because each item has one.
type ItemAttempt struct {
	// AfterMS is the time from the planning of the row to the beginning of the attempt, in milliseconds.
	AfterMS int64 `json:"after_ms"`

	// Worker is the worker that made the attempt.
	Worker string `json:"by,omitempty"`
}

// AttemptOf returns an attempt in the form of the item of a row that was planned at created.
func AttemptOf(a Attempt, created time.Time) *ItemAttempt {
	return &ItemAttempt{AfterMS: a.At.Sub(created).Milliseconds(), Worker: a.Worker}
}

// OfItem returns the delivery of a row, by the record at its item's key, and reports whether the item was delivered. An item that
// was removed from the inbox was delivered; an item that was withheld was not. The delivery has no attempt when the item has none.
func OfItem(found kvrecord.Record) (d *Delivery, came bool) {
	d = &Delivery{State: Delivered, UpdatedAt: found.Stored}
	if len(found.Data) == 0 {
		return d, found.Revision > 0 && found.Header.Get(kvrecord.HeaderWriter) == ""
	}
	var item Item
	if json.Unmarshal(found.Data, &item) == nil && item.Sent != nil {
		d.UpdatedAt = item.CreatedAt.Add(time.Duration(item.Sent.AfterMS) * time.Millisecond)
		d.Attempts = []Attempt{{At: d.UpdatedAt, Outcome: OutcomeSent, Worker: item.Sent.Worker}}
	}
	d.ProviderID = item.ID
	return d, true
}

// RowOfItem returns the row and its key, by the record at its item's key. ok reports whether the item was delivered and does not belong
// to a digest. For an item that was removed from the inbox only the key is known.
func RowOfItem(found kvrecord.Record) (n contracts.Notification, key string, ok bool) {
	d, came := OfItem(found)
	tokens := strings.Split(found.Subject, ".")
	if !came || len(tokens) != 5 || len(found.Data) > 0 && len(d.Attempts) == 0 {
		return n, "", false
	}
	key = strings.Join([]string{tokens[4], Inbox, tokens[2], tokens[3]}, ".")
	of, err := contracts.RowOfKey(key)
	if err != nil {
		return n, "", false
	}
	var item Item
	if len(found.Data) > 0 {
		_ = json.Unmarshal(found.Data, &item) //nolint:errcheck // OfItem has read it
	}
	of.Category, of.CreatedAt, of.EventType, of.Priority, of.Template =
		item.Category, item.CreatedAt, item.EventType, item.Priority, item.Template
	return of, key, true
}

// ItemOf returns the subject of a row's item, by the row's key, "" for a row of another channel.
func (s *Store) ItemOf(key string) string {
	tokens := strings.Split(key, ".")
	if len(tokens) != 4 || tokens[1] != Inbox {
		return ""
	}
	return s.items.Key(strings.Join([]string{tokens[2], tokens[3], tokens[0]}, "."))
}

// Came asks the leader whether the item of a row of the inbox was delivered, by the row's key. One round trip.
func (s *Store) Came(ctx context.Context, key string) (bool, error) {
	found, err := s.items.Latest(ctx, s.ItemOf(key))
	if err != nil {
		return false, fmt.Errorf("deliveries: %w", err)
	}
	_, came := OfItem(found)
	return came, nil
}

// settled reports whether the record of a row decides its outcome, whatever the inbox has. A failed row may have an item
// nevertheless. The item at the key of a row in a digest may belong to the digest, if the row's event is its only one.
func (d *Delivery) settled() bool { return d.State.Ended() && d.State != Failed || d.Digest != "" }

// addItems adds the inbox's items to the records of the rows of keys. One round trip for each ItemsAtOnce items, none when no items
// are needed.
func (s *Store) addItems(ctx context.Context, known map[string]*Delivery, keys []string) error {
	var subjects []string
	of := map[string]string{}
	for _, key := range keys {
		if d := known[key]; d != nil && d.settled() {
			continue
		}
		if subject := s.ItemOf(key); subject != "" {
			subjects, of[subject] = append(subjects, subject), key
		}
	}
	if len(subjects) == 0 {
		return nil
	}
	for some := range slices.Chunk(subjects, ItemsAtOnce) {
		found, err := s.items.GetMany(ctx, some)
		if err != nil {
			return fmt.Errorf("deliveries: %w", err)
		}
		for _, r := range found {
			if item, came := OfItem(r); came {
				key := of[r.Subject]
				known[key] = known[key].delivered(item)
			}
		}
	}
	return nil
}

// delivered returns the delivery of a record, nil for none, with a delivered item.
func (d *Delivery) delivered(item *Delivery) *Delivery {
	if d == nil {
		return item
	}
	with := *d
	with.State, with.Reason, with.Detail, with.Until, with.ProviderID = Delivered, "", "", time.Time{}, item.ProviderID
	with.Attempts, with.behind = slices.Concat(d.Attempts, item.Attempts), d.over.Revision > 0
	if item.UpdatedAt.After(d.UpdatedAt) {
		with.UpdatedAt = item.UpdatedAt
	}
	return &with
}

// ScanItems is Scan for the rows whose items take the place of their records, in the order in which the items were last written or
// marked. Two round trips.
func (s *Store) ScanItems(ctx context.Context, from uint64, limit int) (entries []Entry, read int, next uint64, err error) {
	found, next, err := s.items.Scan(ctx, from, limit)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("deliveries: %w", err)
	}
	var subjects []string
	for _, r := range found {
		tokens := strings.Split(strings.TrimPrefix(r.Subject, s.items.Key("")), ".")
		d, came := OfItem(r)
		if !came || len(d.Attempts) == 0 || len(tokens) != 3 {
			continue
		}
		key := strings.Join([]string{tokens[2], Inbox, tokens[0], tokens[1]}, ".")
		entries, subjects = append(entries, Entry{Delivery: d, Key: key, Revision: r.Revision}), append(subjects, s.records.Key(key))
	}
	if len(subjects) == 0 {
		return nil, len(found), next, nil
	}
	records, err := s.records.GetMany(ctx, subjects)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("deliveries: %w", err)
	}
	kept := map[string]bool{}
	for _, r := range records {
		kept[s.keyOf(r)] = true
	}
	return slices.DeleteFunc(entries, func(e Entry) bool { return kept[e.Key] }), len(found), next, nil
}
