package deliveries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// Inbox is the name of the channel whose items have the records of their notifications.
const Inbox = "inapp"

const (
	// ItemsAtOnce is the number of items that are read at a time. Each may have the payload of an event, up to 768 KiB.
	ItemsAtOnce = 64

	// ItemKeep is the time for which items are kept by default.
	ItemKeep = 90 * 24 * time.Hour
)

// MessageID returns the id of the message of a notification, from the notification's key. It is short, and safe in headers, file names
// and URLs.
func MessageID(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "ntf_" + hex.EncodeToString(sum[:16])
}

// itemRecord is the record of a notification of the inbox. It has an item once the notification is delivered.
type itemRecord struct {
	// Item is an inapp.Item.
	Item json.RawMessage `json:"item,omitempty"`

	// Sent is the only attempt of a notification that was delivered at once. It takes the place of Delivery, because nearly all items
	// have one.
	Sent *sent `json:"sent,omitempty"`

	// Delivery is the record of any other notification.
	Delivery *Delivery `json:"delivery,omitempty"`
}

type sent struct {
	AtMS   int64  `json:"at"` // in Unix milliseconds
	Worker string `json:"by,omitempty"`
}

// encodeItem returns the record of a notification of the inbox.
func (d *Delivery) encodeItem() ([]byte, error) {
	r := itemRecord{Delivery: d}
	if d.AtOnce {
		a := d.Attempts[0]
		r = itemRecord{Sent: &sent{AtMS: a.At.UnixMilli(), Worker: a.Worker}}
	}
	own, err := json.Marshal(r)
	if err != nil || len(d.Item) == 0 {
		return own, err
	}
	const begin = `{"item":`
	data := make([]byte, 0, len(begin)+len(d.Item)+len(own))
	data = append(append(data, begin...), d.Item...) // it is valid: json.Marshal would compact it again
	return append(append(data, ','), own[1:]...), nil
}

// decodeItem reads the record of a notification of the inbox. An item that somebody has removed was delivered.
func decodeItem(found kvrecord.Record) (*Delivery, error) {
	if len(found.Data) == 0 {
		if found.Header.Get("KV-Operation") != "" {
			return &Delivery{State: Delivered, UpdatedAt: found.Stored}, nil
		}
		return &Delivery{State: Pending}, nil
	}
	var r itemRecord
	if err := json.Unmarshal(found.Data, &r); err != nil {
		return nil, err
	}
	d := r.Delivery
	if d == nil {
		d = &Delivery{AtOnce: true, ProviderID: MessageID(keyOfItem(found.Subject)), State: Delivered}
		if r.Sent != nil {
			d.UpdatedAt = time.UnixMilli(r.Sent.AtMS).UTC()
			d.Attempts = []Attempt{{At: d.UpdatedAt, Outcome: OutcomeSent, Worker: r.Sent.Worker}}
		}
	}
	d.Item = r.Item
	return d, nil
}

// itemPrefix begins the subjects of the bucket of items.
const itemPrefix = "$KV." + contracts.BucketInbox + "."

// ItemSubject returns the subject of the record of a notification of the inbox, by the notification's key, "" for any other notification.
func ItemSubject(key string) string {
	tokens := strings.Split(key, ".")
	if len(tokens) != 4 || tokens[1] != Inbox {
		return ""
	}
	return itemPrefix + strings.Join([]string{tokens[2], tokens[3], tokens[0]}, ".")
}

// keyOfItem returns the key of the notification of a record at a subject.
func keyOfItem(subject string) string {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(subject, itemPrefix), ".")
	user, event, _ := strings.Cut(rest, ".")
	return strings.Join([]string{event, Inbox, kind, user}, ".")
}

// ItemFailure returns the error of a channel for an item that was not made, or whose record was not stored.
func ItemFailure(ctx context.Context, err error) *channel.Error {
	kind := channel.KindUnavailable
	switch failure, ok := errors.AsType[*channel.Error](err); {
	case ok:
		return failure
	case errors.Is(err, kvrecord.ErrTooLarge):
		kind = channel.KindRejected
	case ctx.Err() != nil:
		kind = channel.KindTimeout
	}
	return &channel.Error{Channel: Inbox, Kind: kind, Cause: err}
}

// RowAtOnce returns a notification that is in no stream and its key, by its record, and reports whether the record is that of such a
// notification.
func RowAtOnce(found kvrecord.Record) (n contracts.Notification, key string, ok bool) {
	d, err := decodeItem(found)
	if err != nil || !d.AtOnce {
		return n, "", false
	}
	key = keyOfItem(found.Subject)
	of, err := keys.Parse(key)
	if err != nil {
		return n, "", false
	}
	var item struct {
		Category  string    `json:"category"`
		CreatedAt time.Time `json:"created_at"`
		EventType string    `json:"event_type"`
		Priority  string    `json:"priority"`
		Template  string    `json:"template"`
	}
	if json.Unmarshal(d.Item, &item) != nil {
		return n, "", false
	}
	of.Category, of.CreatedAt, of.EventType, of.Priority, of.Template =
		item.Category, item.CreatedAt, item.EventType, item.Priority, item.Template
	return of, key, true
}
