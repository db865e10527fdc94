package api

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Extension attributes of CloudEvents that say what an event is about, whom it is for, and when they are told at the
// earliest, as RFC 3339 has it.
const (
	extensionAggregateType = "aggregatetype"
	extensionNotBefore     = "notbefore"
	extensionRecipientType = "recipienttype"
	extensionUserID        = "userid"
)

// noAggregate is the type of the aggregate of a CloudEvent that names none, and came by no subject that does.
const noAggregate = "CLOUDEVENT"

// Direct is the subject of an event that came by none.
const Direct = "events"

// routed is what the subjects of events with a route begin with.
var routed = strings.TrimSuffix(contracts.RoutedEventsSubjects, ">")

// Read reads an event from a message: an Event, by itself or in a CloudEvent, or any CloudEvent. What the latter
// holds becomes the payload, and its source is part of the event's id, as CloudEvents has it.
func Read(subject string, header nats.Header, data []byte) (contracts.Event, error) {
	envelope, err := contracts.ParseCloudEvent(subject, header, data)
	if err != nil {
		return contracts.Event{}, err
	}
	var probe struct {
		EventID json.RawMessage `json:"event_id"`
	}
	isObject := json.Unmarshal(envelope.Data, &probe) == nil
	if !named(envelope) || isObject && probe.EventID != nil {
		event, err := contracts.Decode[contracts.Event](envelope.Data)
		if err == nil && len(event.Route) > 0 && !strings.HasPrefix(subject, routed) {
			err = &contracts.ValidationError{Type: "Event", Fields: []contracts.FieldError{
				{Path: "/route", Problem: "is not for a source of events: use POST /v1/notify, or a subject of " + contracts.RoutedEventsSubjects},
			}}
		}
		return event, err
	}
	event := contracts.Event{
		EventID: envelope.MsgID(), EventType: envelope.Type, AggregateID: envelope.Subject, OccurredAt: envelope.Time,
		RecipientType: contracts.RecipientType(envelope.Extensions[extensionRecipientType]),
		UserID:        envelope.Extensions[extensionUserID], Payload: envelope.Data,
	}
	event.AggregateType = aggregateType(subject, envelope)
	if said := envelope.Extensions[extensionNotBefore]; said != "" {
		if event.NotBefore, err = time.Parse(time.RFC3339, said); err != nil {
			return event, &contracts.ValidationError{Type: "CloudEvent", Fields: []contracts.FieldError{
				{Path: "/" + extensionNotBefore, Problem: "must be a time such as 2026-01-02T15:04:05Z"},
			}}
		}
	}
	if len(event.Payload) > 0 && !json.Valid(event.Payload) {
		if event.Payload, err = json.Marshal([]byte(event.Payload)); err != nil { // as base64
			return event, err //nolint:wrapcheck // cannot fail
		}
	}
	return event, event.Validate()
}

// aggregateType is what the sender says, or the subject that the event came by.
func aggregateType(subject string, envelope contracts.CloudEvent) string {
	if said := envelope.Extensions[extensionAggregateType]; said != "" {
		return said
	}
	tokens := strings.Split(subject, ".")
	if len(tokens) < 2 {
		return noAggregate
	}
	if decoded, err := contracts.DecodeToken(tokens[1]); err == nil {
		return decoded
	}
	return tokens[1]
}

// named reports whether the message itself said what makes it a CloudEvent.
func named(e contracts.CloudEvent) bool {
	for _, attribute := range e.Assumed {
		if attribute == "id" || attribute == "source" || attribute == "type" {
			return false
		}
	}
	return true
}
