package digest

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

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/cancel"
	"github.com/expediter-io/expediter/services/notifier/internal/row"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

const (
	// MaxItems is how many events a digest contains at most.
	MaxItems = 100

	// MaxMore is how many it counts behind them. Further events go into the next one.
	MaxMore = 5000

	// maxPayload is up to which size, in bytes, the payload of an event is delivered.
	maxPayload = 2 << 10

	// keep is how long a record stays after it was last written: longer than the stream keeps any row that could ask for it.
	keep = 35 * 24 * time.Hour

	// memberText is how many characters of Members an event takes.
	memberText = 16
)

// ErrForeign is returned when the row of a digest cannot be stored since another event has its id.
var ErrForeign = errors.New("another event has the id of the digest")

// Item is one event of a digest.
type Item struct {
	// CreatedAt is the time at which the row of the event was planned.
	CreatedAt time.Time `json:"created_at"`

	// EventID is the id of the event.
	EventID string `json:"event_id"`

	// EventType is the type of the event.
	EventType string `json:"event_type"`

	// Payload is the event's, or null when it is too large.
	Payload json.RawMessage `json:"payload"`

	// Template names the text that the event would have by itself.
	Template string `json:"template,omitempty"`
}

// Digest is the record of one.
type Digest struct {
	// Items are the first events, in the order in which they came.
	Items []Item `json:"items"`

	// Members are the marks of all events, one behind the other, each in base64url.
	Members string `json:"members"`

	// Sealed is since when nothing is added. It is zero before.
	Sealed time.Time `json:"sealed,omitzero"`

	// Locale, Recipient and Template are those of the last row.
	Locale    string               `json:"locale,omitempty"`
	Recipient *contracts.Recipient `json:"recipient,omitempty"`
	Template  string               `json:"template,omitempty"`

	over kvrecord.Record // as it was read or written
}

// Count is how many events the digest has.
func (d *Digest) Count() int { return len(d.Members) / memberText }

// payload is the payload for the template of a digest.
type payload struct {
	Count int    `json:"count"`
	Items []Item `json:"items"`
	More  int    `json:"more"`
}

// Payload returns the payload of a digest: how many events there are, those that it has, and how many more.
func (d *Digest) Payload() (json.RawMessage, error) {
	data, err := json.Marshal(payload{Count: d.Count(), Items: append([]Item{}, d.Items...), More: d.Count() - len(d.Items)})
	if err != nil {
		return nil, fmt.Errorf("digest: encode: %w", err)
	}
	return data, nil
}

// index is where the mark of an event stands in Members, -1 when it does not.
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

// markOf is how an event stands in Members.
func markOf(eventID string) string {
	mark := cancel.MarkOf(eventID)
	return base64.RawURLEncoding.EncodeToString(mark[:])
}

// Store is the records of digests, and the stream of their rows. It is safe for concurrent use, also by several processes.
type Store struct{ records, rows *kvrecord.Stream }

// New returns the store. No round trip.
func New(records *kvrecord.Client) *Store {
	return &Store{records: records.Bucket(contracts.BucketDeliveries), rows: records.Stream(contracts.StreamNotifications)}
}

// Get reads the record of a digest. One that was not written yet is empty. One round trip.
func (s *Store) Get(ctx context.Context, n *contracts.Notification) (*Digest, error) {
	subject, err := s.subjectOf(n)
	if err != nil {
		return nil, err
	}
	return s.get(ctx, subject)
}

func (s *Store) get(ctx context.Context, subject string) (*Digest, error) {
	found, err := s.records.Get(ctx, subject)
	if err != nil {
		return nil, fmt.Errorf("digest: %w", err)
	}
	return decode(found)
}

// Join puts an event into the record of a digest, unless it is there, and reports whether it is there then. It is not when
// the digest has been sealed without it, or is full. The row of the digest is stored before its record. Two round trips, as
// a rule; the first event has one more.
func (s *Store) Join(ctx context.Context, n, event *contracts.Notification) (joined bool, err error) {
	subject, err := s.subjectOf(n)
	if err != nil {
		return false, err
	}
	d, err := s.get(ctx, subject)
	if err == nil && len(d.over.Data) == 0 {
		err = s.store(ctx, n)
	}
	mark := markOf(event.EventID)
	for err == nil {
		if d.index(mark) >= 0 {
			return true, nil
		}
		if !d.Sealed.IsZero() || d.Count() >= MaxItems+MaxMore {
			return false, nil
		}
		d.add(event, mark)
		d, err = s.put(ctx, subject, d)
	}
	return false, err
}

// Seal closes the record of a digest, removes the events for which cancelled reports true, and returns it: from then on the
// record does not change. A caller that ends the row of a digest seals the digest first, so that no event goes into a digest
// that is not sent. Two round trips.
func (s *Store) Seal(ctx context.Context, n *contracts.Notification, cancelled func(cancel.Mark) bool) (*Digest, error) {
	subject, err := s.subjectOf(n)
	if err != nil {
		return nil, err
	}
	d, err := s.get(ctx, subject)
	for err == nil && d.Sealed.IsZero() {
		if cancelled != nil {
			d.remove(cancelled)
		}
		d.Sealed = time.Now().UTC()
		d, err = s.put(ctx, subject, d)
	}
	return d, err
}

// remove takes events out, those that are only counted too.
func (d *Digest) remove(gone func(cancel.Mark) bool) {
	d.Items = slices.DeleteFunc(d.Items, func(item Item) bool { return gone(cancel.MarkOf(item.EventID)) })
	var kept strings.Builder
	for i := 0; i+memberText <= len(d.Members); i += memberText {
		text := d.Members[i : i+memberText]
		var mark cancel.Mark
		if n, err := base64.RawURLEncoding.Decode(mark[:], []byte(text)); err == nil && n == len(mark) && gone(mark) {
			continue
		}
		kept.WriteString(text)
	}
	d.Members = kept.String()
}

// put writes a record over the one that was read, and returns the record that is there then: this one, or another
// process's.
func (s *Store) put(ctx context.Context, subject string, d *Digest) (*Digest, error) {
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("digest: encode: %w", err)
	}
	stored, err := s.records.Put(ctx, kvrecord.Write{Subject: subject, Data: data, Over: d.over, TTL: keep})
	if conflict, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		return decode(conflict.Found)
	}
	if err != nil {
		return nil, fmt.Errorf("digest: %w", err)
	}
	d.over = stored
	return d, nil
}

// store stores the row of a digest, unless it is there.
func (s *Store) store(ctx context.Context, n *contracts.Notification) error {
	header, err := row.Header(n.CreatedAt)
	if err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	var encoder row.Encoder
	msg, err := encoder.Message(*n, header)
	if err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	_, err = s.rows.Put(ctx, kvrecord.Write{Subject: msg.Subject, Header: msg.Header, Data: msg.Data})
	if conflict, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		// Ids come from outside: the one that is there is a digest, or the event that is called like one.
		if there, err := contracts.Decode[contracts.Notification](conflict.Found.Data); err != nil || !there.Collected {
			return fmt.Errorf("digest: %s: %w", msg.Subject, ErrForeign)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	return nil
}

// decode reads a record. None, and the mark of one that was deleted, is an empty digest.
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

func (s *Store) subjectOf(n *contracts.Notification) (string, error) {
	key, err := contracts.DigestKey(n.EventID, n.Channel, n.RecipientType, n.UserID)
	if err != nil {
		return "", fmt.Errorf("digest: %w", err)
	}
	return s.records.Key(key), nil
}

// maxGroup is up to which length, in bytes, a template is part of an id.
const maxGroup = 128

// Group returns the name under which a row is counted, and collected: its category or, when it has none, its
// template.
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

// TemplateOf is the name of the template of the digest that a row goes into.
func TemplateOf(n *contracts.Notification) string {
	return cmp.Or(n.Digest.Template, cmp.Or(n.Category, n.Template, n.EventType)+rules.DigestSuffix)
}

// End is when the window of a digest ends that now is in. In a zone that this machine does not know, the clock is that of
// UTC, and an error that names it.
func End(now time.Time, d *contracts.Digest, zone string) (time.Time, error) {
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

// Row is the row of the digest that a row goes into when the window ends at a moment.
func Row(n *contracts.Notification, end time.Time) *contracts.Notification {
	return &contracts.Notification{
		Category: n.Category, Channel: n.Channel, Collected: true, CreatedAt: time.Now().UTC(), EventType: contracts.EventTypeDigest,
		EventID: contracts.DigestIDPrefix + Group(n) + ":" + end.UTC().Format(time.RFC3339), NotBefore: end.UTC(),
		Priority:      contracts.UrgencyNormal,
		RecipientType: n.RecipientType, Template: clip(TemplateOf(n)), UserID: n.UserID,
	}
}

// clip bounds the name of a template that was not named in the rules by the limit of a row.
func clip(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), contracts.MaxText)], "")
}
