// Package plan turns an event into its plan: the recipients and their channels, decided once and for all.
//
// A plan is committed by one write, of its record at notify.plan.<event>, which the stream takes only where there is
// none. A small plan is all in the record. The entries of a large one are in pages, written before it to subjects that
// name the try, so that the results of two planners never mix: the record names the try whose pages count. Pages that
// no record names are left to the age of the stream.
//
// Beside the plan, which lives as long as its stream keeps it, a record in the bucket of deliveries says which payload
// came under an event's id, and whether it was planned. It stays for 40 days after its last change.
package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

const (
	// MaxPayload bounds the payload of an event, in bytes: with all the rest its plan record must fit into a message.
	MaxPayload = 768 << 10

	// maxEntry bounds the entry of one recipient, in bytes.
	maxEntry = 64 << 10

	// MaxReason bounds the reason of a refusal that is kept, in bytes. The event's dead letter has all of it.
	MaxReason = 512

	// pageBytes is how large a page may become, in bytes, before its last entry.
	pageBytes = 128 << 10

	// rowPayload is up to which size, in bytes, a payload travels with each row. A larger one is read from the plan.
	rowPayload = 2 << 10
)

// Plan holds the recipients of one event, and their channels. Its JSON is the plan record.
type Plan struct {
	// Attempt names the try that wrote the record and its pages: no two tries have the same.
	Attempt string `json:"attempt"`

	// CreatedAt is when the plan was made.
	CreatedAt time.Time `json:"created_at"`

	// Entries are the recipients when there are no pages: their ids, and the fields that the event or a resolver
	// gave them.
	Entries []contracts.Recipient `json:"entries,omitempty"`

	// EventID is the id of the event.
	EventID string `json:"event_id"`

	// EventType is the type of the event.
	EventType string `json:"event_type"`

	// Fingerprint distinguishes the event from another one under the same id.
	Fingerprint string `json:"fingerprint"`

	// NotBefore is when the recipients are notified at the earliest.
	NotBefore time.Time `json:"not_before,omitzero"`

	// Pages is how many pages hold the recipients. 0 means that Entries does.
	Pages int `json:"pages,omitempty"`

	// Partitions is how many streams the rows of the plan are in, by their users. 0 means the first stream alone.
	Partitions int `json:"partitions,omitempty"`

	// Payload is the payload of the event.
	Payload json.RawMessage `json:"payload,omitempty"`

	// Recipients is how many there are.
	Recipients int `json:"recipients"`

	// Routes say, by kind of recipient, how they are notified.
	Routes map[contracts.RecipientType]rules.Route `json:"routes"`

	// Rows is how many rows the plan has: each recipient on each channel of its kind.
	Rows int `json:"rows"`

	// Rules is the version of the rules that the plan was made by.
	Rules string `json:"rules"`
}

// page is the JSON of one page.
type page struct {
	Entries []contracts.Recipient `json:"entries"`
}

// Row returns the row of one recipient on one channel. The same plan gives the same row each time, byte for byte.
func (p *Plan) Row(entry contracts.Recipient, channel string) contracts.Notification {
	route := p.Routes[entry.RecipientType]
	row := contracts.Notification{
		EventID: p.EventID, UserID: entry.UserID, RecipientType: entry.RecipientType, Channel: channel, EventType: p.EventType,
		Category: route.Category, Priority: route.Priority, Template: route.Template, Locale: entry.Locale, CreatedAt: p.CreatedAt,
		NotBefore: p.NotBefore,
		Digest:    route.DigestOn(channel), Throttle: route.Throttle,
	}
	if later := route.LaterOn(channel); later.After > 0 {
		row.NotBefore, row.Unread = p.begins().Add(later.After), later.Unread
	}
	if len(route.Fallback) > 1 && channel == route.Fallback[0] {
		row.Fallback, row.FallbackAfter = route.Fallback[1:], int64(route.FallbackAfter/time.Second)
	}
	if len(p.Payload) <= rowPayload {
		row.Payload = p.Payload
	}
	if entry.Addresses != nil || entry.Digest != nil || entry.Endpoints != nil || entry.Mute != nil || entry.OptOut != nil ||
		entry.QuietHours != nil || entry.TimeZone != "" {
		row.Recipient = &entry
	}
	return row
}

// Partition returns the partition that has the rows of a user. It does not change, so the same stream takes a row at each try.
func (p *Plan) Partition(userID string) int { return contracts.NotifyPartition(userID, p.Partitions) }

// begins is when the recipients are notified on the first channels.
func (p *Plan) begins() time.Time {
	if p.NotBefore.After(p.CreatedAt) {
		return p.NotBefore
	}
	return p.CreatedAt
}

var (
	// ErrMismatch is returned for an event whose id came with another payload before. The first one stands.
	ErrMismatch = errors.New("another event has been published under this id: an event that differs needs an id of its own")

	// ErrNotFound is returned for an event that was never seen, and for one that has no plan, or not any more.
	ErrNotFound = errors.New("nothing is kept of such an event")

	// ErrTooFar is returned for an event that is to be delivered later than its plan can wait.
	ErrTooFar = errors.New("too far ahead")

	// ErrTooLarge is returned for an event or an audience that is larger than a plan can be.
	ErrTooLarge = errors.New("too large for a plan")

	// ErrUnpublished is returned for the cancellation of an event that has not been published when as many are cancelled as may be.
	ErrUnpublished = errors.New("too many events are cancelled that have not been published: cancel it when it is published")
)

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTooLarge, fmt.Sprintf(format, args...))
}
