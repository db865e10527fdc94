package outbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// row is a row of the table.
type row struct {
	ID            int64
	Lane          int16
	Bytes         int
	Attempts      int
	CreatedAt     time.Time
	OrderingKey   string
	EventID       string
	EventType     string
	AggregateType string
	AggregateID   string
	RecipientType string
	RestaurantID  []byte
	UserID        string
	OccurredAt    *time.Time
	NotBefore     *time.Time
	Payload       []byte
	Recipients    []byte
	Headers       []byte
}

// rowColumns are the columns of a row, in its order. rowValues are what is read into it: the large columns are NULL where the
// row is too large to be published.
const (
	smallColumns = `id, lane, bytes, attempts, created_at, ordering_key, event_id, event_type, aggregate_type, aggregate_id,
	recipient_type, `
	rowColumns = smallColumns + `restaurant_id, user_id, occurred_at, not_before, payload, recipients, headers`
	rowValues  = smallColumns + `convert_to(restaurant_id::text, 'UTF8'), user_id, occurred_at, not_before,
	CASE WHEN bytes <= $4 THEN convert_to(payload::text, 'UTF8') END,
	CASE WHEN bytes <= $4 THEN convert_to(recipients::text, 'UTF8') END,
	CASE WHEN bytes <= $4 THEN convert_to(headers::text, 'UTF8') END`
)

// message returns the message of the row. An error means that the row can never be published.
func (r *row) message(stream, source string) (*nats.Msg, error) {
	event, err := r.event()
	if err != nil {
		return nil, err
	}
	subject, err := contracts.EventSubject(event.AggregateType, event.EventType)
	if err != nil {
		return nil, err
	}
	data, err := contracts.Encode(event)
	if err != nil {
		return nil, err
	}
	header, err := contracts.CloudEvent{
		ID: event.EventID, Source: source, Type: contracts.CloudEventDomain, Time: event.OccurredAt, DataContentType: "application/json",
	}.Header()
	if err != nil { // such as an id with a control character: a body can carry it, a header cannot
		header = nats.Header{}
	}
	if err := r.addHeaders(header); err != nil {
		return nil, err
	}
	header[nats.MsgIdHdr], header[nats.ExpectedStreamHdr] = []string{contracts.DomainEventMsgID(r.EventID)}, []string{stream}
	return &nats.Msg{Subject: subject, Header: header, Data: data}, nil
}

// event returns the event of the columns.
func (r *row) event() (contracts.Event, error) {
	if r.Bytes > maxBytes {
		return contracts.Event{}, fmt.Errorf("%d bytes are too many, at most %d", r.Bytes, maxBytes)
	}
	event := contracts.Event{
		EventID: r.EventID, EventType: r.EventType, AggregateType: r.AggregateType, AggregateID: r.AggregateID,
		RecipientType: contracts.RecipientType(r.RecipientType), RestaurantID: r.RestaurantID, UserID: r.UserID, Payload: r.Payload,
	}
	if r.OccurredAt != nil {
		event.OccurredAt = r.OccurredAt.UTC()
	}
	if r.NotBefore != nil {
		event.NotBefore = r.NotBefore.UTC()
	}
	if len(r.Recipients) > 0 {
		if err := json.Unmarshal(r.Recipients, &event.Recipients); err != nil {
			return contracts.Event{}, fmt.Errorf("recipients: %w", err)
		}
	}
	return event, event.Validate()
}

// addHeaders adds the headers of the application.
func (r *row) addHeaders(header nats.Header) error {
	if len(r.Headers) == 0 {
		return nil
	}
	var headers map[string]string
	if err := json.Unmarshal(r.Headers, &headers); err != nil {
		return fmt.Errorf("headers: want an object of strings: %w", err)
	}
	if err := checkHeaders(headers); err != nil {
		return err
	}
	for name, value := range headers {
		header[name] = []string{value}
	}
	return nil
}

// checkHeaders refuses headers that would break the message, or that the server would act on.
func checkHeaders(headers map[string]string) error {
	for name, value := range headers {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
			return fmt.Errorf("header %.80q: want a name of printable ASCII without ':'", name)
		}
		if strings.HasPrefix(strings.ToLower(name), "nats-") {
			return fmt.Errorf("header %.80q: names that start with Nats- are the server's", name)
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			return fmt.Errorf("header %.80q: its value has a line break", name)
		}
	}
	return nil
}
