package recipient

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// routedEvents begins the subjects of events with a route. No encoded id has a slash, so a user without permission for these subjects can
// choose no channels or texts.
const routedEvents = "events./routed"

// RoutedSubjects selects the events with a route.
const RoutedSubjects = routedEvents + ".>"

// maxCarried is the largest number of recipients of an event.
const maxCarried = 10_000

// Event is an event as the notifier reads it: a contracts.Event whose Extra says who is notified. Other members of Extra are ignored.
type Event struct {
	// EventID identifies the fact.
	EventID string `json:"event_id"`
	// EventType names the kind of event.
	EventType string `json:"event_type"`
	// AggregateType is the kind of thing that the event happened to.
	AggregateType string `json:"aggregate_type"`
	// AggregateID is the id of that thing; optional.
	AggregateID string `json:"aggregate_id,omitempty"`
	// RecipientType is the kind of recipient to notify, or BROADCAST. Defaults to the rules.
	RecipientType contracts.RecipientType `json:"recipientType,omitempty"`
	// RestaurantID is the restaurant that the event concerns, a string or a whole number as the source wrote it; optional.
	RestaurantID json.RawMessage `json:"restaurant_id,omitempty"`
	// UserID is the single recipient, when the event is meant for one; optional.
	UserID string `json:"user_id,omitempty"`
	// OccurredAt is when it happened; optional.
	OccurredAt time.Time `json:"occurred_at,omitzero"`
	// NotBefore is the earliest time at which recipients are notified; optional.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Payload is any JSON that the rules and templates for the type understand.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Recipients are the recipients to notify, for a source that knows them; otherwise a Resolver finds them. At most 10,000.
	Recipients []contracts.Recipient `json:"recipients,omitempty"`
	// Route says how the Recipients are notified, in the words of the rules and in their place; optional. The notifier takes it from
	// RoutedSubjects only.
	Route json.RawMessage `json:"route,omitempty"`
}

// Of returns an event as the notifier reads it. The error is that of Validate, or of a member with another type.
func Of(e contracts.Event) (Event, error) {
	data, err := contracts.Encode(e)
	if err != nil {
		return Event{}, err
	}
	return contracts.Decode[Event](data)
}

// Message returns the event for a [contracts.Publisher]. The error is that of Validate.
func (e Event) Message() (contracts.Event, error) {
	data, err := contracts.Encode(e)
	if err != nil {
		return contracts.Event{}, err
	}
	return contracts.Decode[contracts.Event](data)
}

// Validate checks all fields.
func (e Event) Validate() error {
	var wrong contracts.Mistakes
	kind := string(e.RecipientType)
	wrong.Add(kind != "" && (len(kind) > contracts.MaxName || !subject.IsSafeToken(kind)), "/recipientType",
		fmt.Sprintf("must be 1 to %d of A-Z, a-z, 0-9, '_' and '-'", contracts.MaxName))
	problem := checkRestaurant(e.RestaurantID)
	wrong.Add(problem != "", "/restaurant_id", problem)
	base := contracts.Event{
		EventID: e.EventID, EventType: e.EventType, AggregateType: e.AggregateType, AggregateID: e.AggregateID, UserID: e.UserID,
		OccurredAt: e.OccurredAt, NotBefore: e.NotBefore, Payload: e.Payload, Extra: map[string]json.RawMessage{"route": e.Route},
	}.Validate()
	if invalid, ok := errors.AsType[*contracts.ValidationError](base); ok { // in the order of the fields
		ids := slices.IndexFunc(invalid.Fields, func(f contracts.FieldError) bool {
			return !strings.HasPrefix(f.Path, "/event_") && !strings.HasPrefix(f.Path, "/aggregate_")
		})
		if ids < 0 {
			ids = len(invalid.Fields)
		}
		wrong = slices.Insert(invalid.Fields, ids, wrong...)
	}
	n := len(e.Recipients)
	wrong.Add(n > maxCarried, "/recipients", fmt.Sprintf("has %d items, at most %d", n, maxCarried))
	for i := 0; n <= maxCarried && i < n; i++ {
		if invalid, ok := errors.AsType[*contracts.ValidationError](e.Recipients[i].Validate()); ok {
			for _, field := range invalid.Fields {
				wrong.Add(true, "/recipients/"+strconv.Itoa(i)+field.Path, field.Problem)
			}
		}
	}
	wrong.Add(len(e.Route) > 0 && len(e.Recipients) == 0, "/recipients", "is required for an event that says how they are notified")
	return wrong.In("Event")
}

// checkRestaurant returns the problem of an id that some sources write as a number, "" for none. 5 and "5" are both kept as written.
func checkRestaurant(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if raw[0] != '"' {
		if _, err := strconv.ParseUint(strings.TrimPrefix(string(raw), "-"), 10, 64); err != nil {
			return "must be a string or a whole number"
		}
		return ""
	}
	var id string
	switch err := json.Unmarshal(raw, &id); {
	case err != nil:
		return "is not a JSON string"
	case id == "":
		return "is required"
	case len(id) > contracts.MaxID:
		return fmt.Sprintf("has %d bytes, at most %d", len(id), contracts.MaxID)
	case strings.ContainsRune(id, utf8.RuneError):
		return "is not valid Unicode"
	}
	return ""
}

// Subject returns the subject of the event.
func (e Event) Subject() (string, error) {
	if len(e.Route) > 0 {
		return subject.Join(routedEvents, subject.ID("event_type", e.EventType))
	}
	return contracts.EventSubject(e.AggregateType, e.EventType)
}

// Fingerprint returns the fingerprint of the event, see contracts.Event. Members that the notifier ignores do not count.
func (e Event) Fingerprint() (string, error) {
	m, err := e.Message()
	if err != nil {
		return "", err
	}
	return m.Fingerprint()
}

// PublisherConfig returns a configuration for a [contracts.Publisher] or an outbox that publishes and compares events as the notifier reads
// them, and refuses those that the notifier would refuse.
func PublisherConfig() contracts.PublisherConfig {
	return contracts.PublisherConfig{
		Fingerprint: func(body []byte) (string, error) {
			e, err := contracts.Decode[Event](body)
			if err != nil {
				return "", err
			}
			return e.Fingerprint()
		},
		Subject: func(m contracts.Event) (string, error) {
			e, err := Of(m)
			if err != nil {
				return "", err
			}
			return e.Subject()
		},
	}
}

// Aggregate returns the aggregate of an event or, if the event only names a restaurant, the restaurant. The id is ""
// when the event names neither.
func Aggregate(e Event) (kind, id string) {
	if e.AggregateID != "" {
		return e.AggregateType, e.AggregateID
	}
	raw := string(e.RestaurantID)
	if raw == "" || raw == "null" {
		return e.AggregateType, ""
	}
	var text string
	if err := json.Unmarshal(e.RestaurantID, &text); err == nil {
		raw = text
	}
	return AggregateRestaurant, raw
}
