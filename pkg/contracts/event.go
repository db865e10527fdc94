package contracts

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Event is a fact that a source system publishes. Its JSON is one object: the fields, and the members of Extra next to them.
//
// Do not embed an Event in a struct that is encoded as JSON: its methods would encode the event in place of the struct.
type Event struct {
	// EventID identifies the fact; readers refuse the same id with another payload.
	EventID string `json:"event_id" jsonschema:"minLength=1,maxLength=320"`
	// EventType names the kind of event, such as RESERVATION_REQUESTED.
	EventType string `json:"event_type" jsonschema:"minLength=1,maxLength=320"`
	// AggregateType is the kind of thing that the event happened to, such as RESTAURANT.
	AggregateType string `json:"aggregate_type" jsonschema:"minLength=1,maxLength=320"`
	// AggregateID is the id of that thing; optional.
	AggregateID string `json:"aggregate_id,omitempty" jsonschema:"maxLength=320"`
	// UserID is the single user whom the event is meant for; optional.
	UserID string `json:"user_id,omitempty" jsonschema:"maxLength=320"`
	// OccurredAt is when it happened; optional.
	OccurredAt time.Time `json:"occurred_at,omitzero"`
	// NotBefore is the earliest time at which readers act on the event; optional. Readers bound how far ahead it may be.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Payload is any JSON that the readers of the type understand.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Extra has the other members of the object, by name. Their meaning is between a source and its readers, such as recipientType
	// for the notifier. Decode keeps all members without a field here, and null stays null. An empty value is not written.
	Extra map[string]json.RawMessage `json:"-"`
}

// Validate checks all fields. Extra may have any JSON that Decode would accept, under names that are not those of fields.
func (e Event) Validate() error {
	var c checks
	c.id("/event_id", e.EventID)
	c.id("/event_type", e.EventType)
	c.id("/aggregate_type", e.AggregateType)
	c.optionalID("/aggregate_id", e.AggregateID)
	c.optionalID("/user_id", e.UserID)
	c.timestamp("/occurred_at", e.OccurredAt)
	c.timestamp("/not_before", e.NotBefore)
	c.opaque("/payload", e.Payload)
	for _, name := range slices.Sorted(maps.Keys(e.Extra)) {
		path := "/" + clip(name)
		switch {
		case slices.Contains(eventFields, name):
			c.add(path, "is a field of an event: set the field, and leave it out of Extra")
		case !utf8.ValidString(name):
			c.add(path, "is not valid UTF-8")
		default:
			c.opaque(path, e.Extra[name])
		}
	}
	return c.In("Event")
}

// eventFields are the names of the members that have a field.
var eventFields = strings.Fields("event_id event_type aggregate_type aggregate_id user_id occurred_at not_before payload")

// AppendJSON appends the event to dst. The members of Extra come last, in alphabetical order.
func (e Event) AppendJSON(dst []byte) ([]byte, error) {
	type fields Event
	raw, err := marshal(fields(e))
	if err != nil {
		return dst, err
	}
	all := bytes.NewBuffer(append(dst, raw[:len(raw)-1]...))
	for _, name := range slices.Sorted(maps.Keys(e.Extra)) {
		if len(e.Extra[name]) == 0 {
			continue
		}
		_, _ = all.Write(append(appendQuoted([]byte{','}, name), ':'))
		if err := json.Compact(all, e.Extra[name]); err != nil {
			return dst, Mistake("Event", "/"+clip(name), "is not JSON: "+err.Error())
		}
	}
	return append(all.Bytes(), '}'), nil
}

// MarshalJSON is AppendJSON for encoding/json.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil) }

// UnmarshalJSON reads an event with the rules of Decode, without validating it.
func (e *Event) UnmarshalJSON(data []byte) error {
	var read Event
	if invalid, _ := decodeInto(data, &read); invalid != nil {
		return invalid
	}
	*e = read
	return nil
}

// UnmarshalJSONFrom reads an event for Decode.
func (e *Event) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type fields Event
	var read struct {
		fields

		Extra map[string]json.RawMessage `json:",embed"`
	}
	err := jsonv2.UnmarshalDecode(dec, &read)
	*e = Event(read.fields)
	e.Extra = read.Extra
	return err
}
