package hold

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

const (
	// MaxItems is the largest number of events that a digest contains.
	MaxItems = 100

	// MaxMore is the largest number of further events that a digest only counts. All later events go into the next
	// digest.
	MaxMore = 5000

	// maxPayload bounds the payload of an event in a digest, in bytes. A larger payload is left out.
	maxPayload = 2 << 10

	// digestKeep is the time for which a record stays after its last write: longer than the stream keeps a notification that could need
	// the record.
	digestKeep = 35 * 24 * time.Hour

	// memberText is the number of characters of Members for each event.
	memberText = 16
)

// ErrForeign is returned when the notification of a digest cannot be stored because another event has its id.
var ErrForeign = errors.New("another event has the id of the digest")

// Item is one event of a digest.
type Item struct {
	// CreatedAt is the time at which the notification of the event was planned.
	CreatedAt time.Time `json:"created_at"`

	// EventID is the id of the event.
	EventID string `json:"event_id"`

	// EventType is the type of the event.
	EventType string `json:"event_type"`

	// Payload is the payload of the event, or null when it is too large.
	Payload json.RawMessage `json:"payload"`

	// Template names the text that the event would have without a digest.
	Template string `json:"template,omitempty"`
}

// Digest is the record of a digest.
type Digest struct {
	// Items are the first events, in the order in which they were added.
	Items []Item `json:"items"`

	// Members are the concatenated marks of all events, each in base64url.
	Members string `json:"members"`

	// Sealed is the time at which the digest was sealed, zero before. A sealed digest takes no events.
	Sealed time.Time `json:"sealed,omitzero"`

	// Locale, Recipient and Template are fields of the last notification.
	Locale    string               `json:"locale,omitempty"`
	Recipient *contracts.Recipient `json:"recipient,omitempty"`
	Template  string               `json:"template,omitempty"`

	over kvrecord.Record // as last read or written
}

// Count returns the number of events of the digest.
func (d *Digest) Count() int { return len(d.Members) / memberText }

// Payload returns the payload of a digest: the number of all events, the events that it has, and the number of the
// others.
func (d *Digest) Payload() (json.RawMessage, error) {
	data, err := json.Marshal(map[string]any{"count": d.Count(), "items": append([]Item{}, d.Items...), "more": d.Count() - len(d.Items)})
	if err != nil {
		return nil, fmt.Errorf("digest: encode: %w", err)
	}
	return data, nil
}

// index returns the position of an event's mark in Members, -1 when it is not there.
func (d *Digest) index(mark string) int {
	for i := 0; i+memberText <= len(d.Members); i += memberText {
		if d.Members[i:i+memberText] == mark {
			return i
		}
	}
	return -1
}

func (d *Digest) add(n *contracts.Notification, mark string) {
	if len(d.Items) < MaxItems {
		item := Item{CreatedAt: n.CreatedAt, EventID: n.EventID, EventType: n.EventType, Template: n.Template}
		if len(n.Payload) <= maxPayload {
			item.Payload = n.Payload
		}
		d.Items = append(d.Items, item)
	}
	d.Members += mark
	d.Locale, d.Recipient, d.Template = n.Locale, n.Recipient, TemplateOf(n)
}

// Digests has the records of digests, and the stream of their notifications. It is safe for concurrent use, also by several
// processes.
type Digests struct{ records, rows *kvrecord.Stream }

// NewDigests returns the store. No round trip.
func NewDigests(records *kvrecord.Client) *Digests {
	return &Digests{records: records.Bucket(contracts.BucketDeliveries), rows: records.Stream(contracts.StreamNotifications)}
}

// Get reads the record of a digest, which is empty when it was not written yet. One round trip.
func (s *Digests) Get(ctx context.Context, n *contracts.Notification) (*Digest, error) {
	key, err := keys.Digest(n.EventID, n.Channel, n.RecipientType, n.UserID)
	if err != nil {
		return nil, fmt.Errorf("digest: %w", err)
	}
	found, err := s.records.Get(ctx, s.records.Key(key))
	if err != nil {
		return nil, fmt.Errorf("digest: %w", err)
	}
	return decode(found)
}

// Join puts an event into the record of a digest, unless it is there, and reports whether the record has it. It has not
// when the digest was sealed without the event, or is full. Join stores the notification of the digest before its record. Usually
// two round trips; one more for the first event.
func (s *Digests) Join(ctx context.Context, n, event *contracts.Notification) (joined bool, err error) {
	d, err := s.Get(ctx, n)
	if err == nil && len(d.over.Data) == 0 {
		err = s.store(ctx, n)
	}
	sum := MarkOf(event.EventID)
	mark := base64.RawURLEncoding.EncodeToString(sum[:])
	for err == nil {
		if d.index(mark) >= 0 {
			return true, nil
		}
		if !d.Sealed.IsZero() || d.Count() >= MaxItems+MaxMore {
			return false, nil
		}
		d.add(event, mark)
		d, err = s.put(ctx, d)
	}
	return false, err
}

// Seal closes the record of a digest, removes the events for which cancelled reports true, and returns the record, which
// then no longer changes. A caller that ends the notification of a digest seals the digest first, so that no event goes into a digest
// that is not sent. Two round trips.
func (s *Digests) Seal(ctx context.Context, n *contracts.Notification, cancelled func(Mark) bool) (*Digest, error) {
	d, err := s.Get(ctx, n)
	for err == nil && d.Sealed.IsZero() {
		if cancelled != nil {
			d.remove(cancelled)
		}
		d.Sealed = time.Now().UTC()
		d, err = s.put(ctx, d)
	}
	return d, err
}

// remove removes events, also those that are only counted.
func (d *Digest) remove(gone func(Mark) bool) {
	d.Items = slices.DeleteFunc(d.Items, func(item Item) bool { return gone(MarkOf(item.EventID)) })
	var kept strings.Builder
	for i := 0; i+memberText <= len(d.Members); i += memberText {
		text := d.Members[i : i+memberText]
		var mark Mark
		if n, err := base64.RawURLEncoding.Decode(mark[:], []byte(text)); err == nil && n == len(mark) && gone(mark) {
			continue
		}
		kept.WriteString(text)
	}
	d.Members = kept.String()
}

// put writes a record over the one that was read, and returns the record that is then stored: this one, or another
// process's.
func (s *Digests) put(ctx context.Context, d *Digest) (*Digest, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("digest: encode: %w", err)
	}
	stored, err := s.records.Put(ctx, kvrecord.Write{Subject: d.over.Subject, Data: data, Over: d.over, TTL: digestKeep})
	if conflict, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		return decode(conflict.Found)
	}
	if err != nil {
		return nil, fmt.Errorf("digest: %w", err)
	}
	d.over = stored
	return d, nil
}

// store stores the notification of a digest, unless it is stored already.
func (s *Digests) store(ctx context.Context, n *contracts.Notification) error {
	w, err := deliveries.Write(*n)
	if err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	_, err = s.rows.Put(ctx, w)
	if conflict, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		// Ids come from outside: the existing notification may be the digest, or an event with the id of a digest.
		if there, err := contracts.Decode[contracts.Notification](conflict.Found.Data); err != nil || !there.Collected {
			return fmt.Errorf("digest: %s: %w", w.Subject, ErrForeign)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	return nil
}

// decode reads a record. A missing or deleted record is an empty digest.
func decode(found kvrecord.Record) (*Digest, error) {
	d := Digest{over: found}
	if len(found.Data) == 0 {
		return &d, nil
	}
	if err := json.Unmarshal(found.Data, &d); err != nil {
		return nil, fmt.Errorf("digest: record at %d: %w", found.Revision, err)
	}
	return &d, nil
}

// maxGroup is the longest template, in bytes, that is a part of an id.
const maxGroup = 128

// Group returns the name under which a notification is counted by throttles and collected by digests: its category or, without
// one, its template.
func Group(n *contracts.Notification) string {
	if n.Category != "" {
		return n.Category
	}
	name := cmp.Or(n.Template, n.EventType)
	if len(name) > maxGroup {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:])
	}
	return "template/" + name // no category has a slash
}

// TemplateOf returns the name of the template of a notification's digest.
func TemplateOf(n *contracts.Notification) string {
	return cmp.Or(n.Digest.Template, cmp.Or(n.Category, n.Template, n.EventType)+rules.DigestSuffix)
}

// DigestEnd returns the end of the window of a digest that contains now. For a zone that this machine does not know, it uses
// UTC and also returns an error that names the zone.
func DigestEnd(now time.Time, d *contracts.Digest, zone string) (time.Time, error) {
	local, unknown := schedule.In(zone, now)
	if unknown != nil {
		local = now.UTC()
	}
	if d.Every > 0 {
		return schedule.NextEvery(local, time.Duration(d.Every)*time.Minute).UTC(), unknown
	}
	clocks := make([]time.Duration, len(d.At))
	for i, text := range d.At {
		var err error
		if clocks[i], err = schedule.Clock(text); err != nil {
			return time.Time{}, fmt.Errorf("digest: at: %w", err)
		}
	}
	return schedule.NextOf(local, clocks).UTC(), unknown
}

// DigestIDPrefix begins the event ids of digests.
const DigestIDPrefix = "digest:"

// DigestNotification returns the notification of the digest for a notification and the end of a window.
func DigestNotification(n *contracts.Notification, end time.Time) *contracts.Notification {
	return &contracts.Notification{
		Category: n.Category, Channel: n.Channel, Collected: true, CreatedAt: time.Now().UTC(), EventType: "DIGEST",
		EventID: DigestIDPrefix + Group(n) + ":" + end.UTC().Format(time.RFC3339), NotBefore: end.UTC(),
		Priority:      "normal",
		RecipientType: n.RecipientType, Template: redact.Clip(TemplateOf(n), contracts.MaxText), UserID: n.UserID,
	}
}
