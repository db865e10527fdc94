// Package plan turns an event into its plan: the recipients and their channels, decided once.
//
// A plan is committed by one write, of its record at notify.plan.<event>, which the stream takes only once. A small
// plan is complete in the record. The entries of a large plan are in pages, which are written before the record to
// subjects with the name of the attempt, so that the results of two planners never mix: the record names the attempt
// whose pages count. Pages that no record names expire with the stream's age limit.
//
// In addition to the plan, which stays as long as its stream keeps it, a record in the bucket of deliveries has the
// fingerprint and the state of the event. It stays for 40 days after its last change.
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
	// MaxPayload bounds the payload of an event, in bytes, so that the whole plan record fits into a message.
	MaxPayload = 768 << 10

	// maxEntry bounds the entry of one recipient, in bytes.
	maxEntry = 64 << 10

	// MaxReason bounds the reason of a refusal that is kept, in bytes. The event's dead letter has the whole reason.
	MaxReason = 512

	// pageBytes bounds a page without its last entry, in bytes.
	pageBytes = 128 << 10

	// rowPayload is the largest payload, in bytes, that is stored with each notification. A larger payload is read from the plan.
	rowPayload = 2 << 10
)

// Plan holds the recipients of one event, and their channels. Its JSON is the plan record.
type Plan struct {
	// Attempt is the unique name of the attempt that wrote the record and its pages.
	Attempt string `json:"attempt"`

	// CreatedAt is the time at which the plan was made.
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

	// NotBefore is the earliest time at which the recipients are notified.
	NotBefore time.Time `json:"not_before,omitzero"`

	// Pages is the number of pages with the recipients. 0 means that Entries has them.
	Pages int `json:"pages,omitempty"`

	// Payload is the payload of the event.
	Payload json.RawMessage `json:"payload,omitempty"`

	// Recipients is the number of recipients.
	Recipients int `json:"recipients"`

	// Routes are the routes by kind of recipient.
	Routes map[contracts.RecipientType]rules.Route `json:"routes"`

	// Notifications is the number of notifications of the plan: one for each recipient and channel of its kind.
	Notifications int `json:"notifications"`

	// Rules is the version of the rules by which the plan was made.
	Rules string `json:"rules"`
}

// page is the JSON of one page.
type page struct {
	Entries []contracts.Recipient `json:"entries"`
}

// Notification returns the notification of one recipient on one channel. The notification of a plan is the same each time, byte for byte.
func (p *Plan) Notification(entry contracts.Recipient, channel string) contracts.Notification {
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

// begins returns the time at which the recipients are notified on the first channels.
func (p *Plan) begins() time.Time {
	if p.NotBefore.After(p.CreatedAt) {
		return p.NotBefore
	}
	return p.CreatedAt
}

var (
	// ErrMismatch is returned for an event whose id was published with another payload before. The first event stays.
	ErrMismatch = errors.New("another event has been published under this id: an event that differs needs another id")

	// ErrNotFound is returned for an event that was never seen, or that has no plan, or no longer.
	ErrNotFound = errors.New("nothing is kept of such an event")

	// ErrTooFar is returned for an event that is to be delivered later than its plan can wait.
	ErrTooFar = errors.New("too far ahead")

	// ErrTooLarge is returned for an event or an audience that is too large for a plan.
	ErrTooLarge = errors.New("too large for a plan")
)

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTooLarge, fmt.Sprintf(format, args...))
}
