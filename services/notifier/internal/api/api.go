// Package api has the operations of the notifier over HTTP, and over NATS (ADR-32) for programs that have a connection and for the nats
// command line: it accepts events, and reports the states of events and notifications. Instances of one name share the requests over NATS.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// ErrUnknownEvent is returned for an event that was not published, or to which no rule applies.
var ErrUnknownEvent = errors.New("there is no such event")

// Config holds the parts that the API works on. All are required.
type Config struct {
	Audit      *audit.Log
	Channels   map[string]channel.Channel // the channels with addresses, by name
	Cancelled  *hold.Cancelled
	Digests    *hold.Digests
	Directory  *recipient.Directory
	Health     *health.Store
	Logger     *slog.Logger // gets the failures of test messages that callers do not see
	Deliveries *deliveries.Store
	Planner    *plan.Planner
	Publisher  *contracts.Publisher
	Telemetry  *natsotel.Telemetry // nil for none
	Reader     *plan.Reader
	Rules      func() *rules.Rules
	Tested     map[string]channel.Channel // the channels with texts, by name
	Throttles  *hold.Throttles            // counts the requests of callers who are no operators
}

// API accepts events and reports their states. It is safe for concurrent use.
type API struct {
	cfg        Config
	deliveries *kvrecord.Stream
	items      *kvrecord.Stream // of the inbox
	rows       *kvrecord.Stream
}

// New returns an API. No round trip.
func New(records *kvrecord.Client, cfg Config) *API {
	return &API{
		cfg: cfg, deliveries: records.Bucket(contracts.BucketDeliveries), items: records.Bucket(contracts.BucketInbox),
		rows: records.Stream(contracts.StreamNotifications),
	}
}

// Accepted is the outcome of publishing an event.
type Accepted struct {
	// Duplicate reports whether the event had been published before.
	Duplicate bool `json:"duplicate"`

	// EventID is the id of the event.
	EventID string `json:"event_id"`

	// Ignored reports whether no rule applies to the event: it is in the stream, and nobody is notified.
	Ignored bool `json:"ignored,omitempty"`

	// State is the state of the event: seen, planned, expanded, refused or cancelled. "" means that it is only in the
	// stream.
	State plan.State `json:"state,omitempty"`
}

// Publish publishes an event. When it returns without an error, the stream has acknowledged the event, or the event was
// planned before. The error matches [plan.ErrMismatch] or [contracts.ErrEventMismatch] when another event was published
// under the id.
func (a *API) Publish(ctx context.Context, e recipient.Event) (Accepted, error) {
	if err := e.Validate(); err != nil {
		return Accepted{}, err
	}
	if !a.cfg.Planner.Concerns(e) {
		done, err := a.store(ctx, e)
		return Accepted{Duplicate: done.Duplicate, EventID: e.EventID, Ignored: true}, err
	}
	kept, news, err := a.cfg.Planner.Accept(ctx, e)
	if err != nil {
		return Accepted{}, err
	}
	// The record decides which caller was first. Of two callers at the same moment the other may be first in the stream.
	answer := Accepted{Duplicate: !news, EventID: e.EventID, State: kept.State}
	if !kept.Unplanned() {
		return answer, nil
	}
	done, err := a.store(ctx, e)
	if err == nil && !done.Duplicate && kept.State == plan.StateRefused {
		answer.State, err = plan.StateSeen, a.cfg.Planner.Reopen(ctx, kept)
	}
	return answer, err
}

// store puts an event into the stream, from which the planner takes it.
func (a *API) store(ctx context.Context, e recipient.Event) (contracts.Published, error) {
	ctx, sending := a.cfg.Telemetry.Send(ctx, contracts.StreamEvents, nats.Header{}) // the publisher writes the headers of each attempt
	var done contracts.Published
	m, err := e.Message()
	if err == nil {
		done, err = a.cfg.Publisher.Publish(ctx, m)
	}
	sending.EndSend(err)
	return done, err
}

// Event is the state of an event.
type Event struct {
	// At is the time at which the event was first seen.
	At time.Time `json:"at"`

	// EventID is the id of the event.
	EventID string `json:"event_id"`

	// EventType is the type of the event, as long as the plan is kept.
	EventType string `json:"event_type,omitempty"`

	// Reason is the reason for which the event was refused, "" when it was not.
	Reason string `json:"reason,omitempty"`

	// Recipients and Planned are the numbers of recipients and notifications of the plan.
	Recipients int `json:"recipients"`
	Planned    int `json:"planned"`

	// Rules is the version of the rules by which the event was planned.
	Rules string `json:"rules,omitempty"`

	// State is the state of the event: seen, planned, expanded, refused or cancelled.
	State plan.State `json:"state"`
}

// Event returns the state of an event. Two round trips.
func (a *API) Event(ctx context.Context, eventID string) (Event, error) {
	kept, err := a.cfg.Reader.Event(ctx, eventID)
	if errors.Is(err, plan.ErrNotFound) || errors.Is(err, contracts.ErrTokenTooLong) || errors.Is(err, contracts.ErrEmptyToken) {
		return Event{}, fmt.Errorf("%w: %.80q", ErrUnknownEvent, eventID)
	}
	if err != nil {
		return Event{}, err
	}
	e := Event{At: kept.At, EventID: eventID, Reason: kept.Reason, Recipients: kept.Recipients, Planned: kept.Notifications, State: kept.State}
	p, err := a.cfg.Reader.Get(ctx, eventID)
	switch {
	case errors.Is(err, plan.ErrNotFound): // not planned yet, or the plan has expired
		return e, nil
	case err != nil:
		return Event{}, err
	}
	e.EventType, e.Recipients, e.Planned, e.Rules = p.EventType, p.Recipients, p.Notifications, p.Rules
	return e, nil
}

// Problem maps an error of the notifier to the problem that a client gets. It is a [service.ErrorMapper].
func Problem(err error) service.Problem {
	_, silent := errors.AsType[*contracts.PublishError](err)
	if directory, ok := errors.AsType[*recipient.Error](err); ok && !directory.Permanent {
		silent = true
	}
	switch {
	case errors.Is(err, plan.ErrMismatch), errors.Is(err, contracts.ErrEventMismatch):
		return service.Problem{Status: http.StatusConflict, Code: "EVENT_MISMATCH"}
	case errors.Is(err, ErrNotExpanded):
		return service.Problem{Status: http.StatusConflict, Code: "EVENT_NOT_EXPANDED"}
	case errors.Is(err, plan.ErrTooFar):
		return service.Problem{Status: http.StatusUnprocessableEntity, Code: "NOT_BEFORE_TOO_FAR"}
	case errors.Is(err, plan.ErrTooLarge):
		return service.Problem{Status: http.StatusRequestEntityTooLarge}
	case errors.Is(err, recipient.ErrChanged):
		return service.Problem{Status: http.StatusPreconditionFailed, Code: "USER_CHANGED", Detail: recipient.ErrChanged.Error()}
	case errors.Is(err, recipient.ErrKept):
		return service.Problem{Status: http.StatusForbidden, Code: "OPT_OUT_KEPT", Detail: strings.TrimPrefix(err.Error(), "recipients: ")}
	case errors.Is(err, recipient.ErrUnreadable):
		return service.Problem{Status: http.StatusConflict, Code: "USER_UNREADABLE", Detail: strings.TrimPrefix(err.Error(), "recipients: ")}
	case errors.Is(err, recipient.ErrTooLarge):
		return service.Problem{Status: http.StatusRequestEntityTooLarge, Detail: recipient.ErrTooLarge.Error()}
	case errors.Is(err, recipient.ErrUnknown), errors.Is(err, recipient.ErrForgotten):
		return service.Problem{Status: http.StatusNotFound, Detail: recipient.ErrUnknown.Error()}
	case errors.Is(err, ErrUnknownEvent), errors.Is(err, inapp.ErrNotFound), errors.Is(err, health.ErrUnknown), errors.Is(err, errNoAddress):
		return service.Problem{Status: http.StatusNotFound}
	case errors.Is(err, contracts.ErrTokenTooLong), errors.Is(err, contracts.ErrTokenMalformed):
		return service.Problem{Status: http.StatusBadRequest}
	case silent, errors.Is(err, audit.ErrUnavailable), errors.Is(err, kvrecord.ErrUnavailable), errors.Is(err, kvrecord.ErrClosed):
		return service.Unavailable()
	}
	return service.Problem{}
}

// EndpointQuery selects endpoints that do not work. Empty fields select all.
type EndpointQuery struct {
	// Channel is the name of the channel.
	Channel string `example:"webhook" json:"channel" query:"channel"`

	// Cursor is the next of the page before.
	Cursor string `json:"cursor" query:"cursor"`

	// Limit is the largest number of endpoints. Defaults to 100.
	Limit int `example:"10" json:"limit" jsonschema:"minimum=1,maximum=1000" query:"limit"`

	// State is the state of the endpoints.
	State health.State `example:"failing" json:"state" jsonschema:"enum=failing,enum=disabled" query:"state"`
}

// EndpointPage is a page of the endpoints that a query selects.
type EndpointPage struct {
	// Endpoints are in the order in which they entered their states.
	Endpoints []health.Endpoint `json:"endpoints"`

	// Next is the cursor of the next page, "" when there is none. An empty page may have a next one.
	Next string `json:"next,omitempty"`
}

// EndpointName names an endpoint.
type EndpointName struct {
	Channel string `json:"channel"`
	ID      string `json:"id"`
}

// Endpoints returns a page of the endpoints that are disabled or whose deliveries fail. One round trip.
func (a *API) Endpoints(ctx context.Context, q EndpointQuery) (EndpointPage, error) {
	from, err := parse(q.Cursor)
	if err != nil {
		return EndpointPage{}, err
	}
	var wrong contracts.Mistakes
	wrong.Add(q.Channel != "" && !isToken(q.Channel), "?channel", unnameable)
	checkLimit(&wrong, q.Limit)
	wrong.Add(q.State != "" && q.State != health.Failing && q.State != health.Disabled, "?state", "must be failing or disabled")
	if err := wrong.In("query"); err != nil {
		return EndpointPage{}, err
	}
	found, next, err := a.cfg.Health.List(ctx, q.Channel, q.State, from.revision, cmp.Or(q.Limit, defaultLimit))
	if err != nil {
		return EndpointPage{}, err
	}
	return EndpointPage{Endpoints: append([]health.Endpoint{}, found...), Next: at(next).String()}, nil
}

// Enable enables an endpoint, and returns its previous state. Four round trips.
func (a *API) Enable(ctx context.Context, name EndpointName) (was health.Endpoint, err error) {
	var wrong contracts.Mistakes
	wrong.Add(!isToken(name.Channel), "/channel", unnameable)
	wrong.Add(!isToken(name.ID), "/id", unnameable)
	if err := wrong.In("request"); err != nil {
		return was, err
	}
	err = a.cfg.Audit.Do(ctx, "enable", "endpoint "+name.ID+" of "+name.Channel, func(ctx context.Context) (n int, err error) {
		if was, err = a.cfg.Health.Enable(ctx, name.Channel, name.ID); err == nil {
			n = 1
		}
		return n, err
	})
	return was, err
}

// unnameable is the problem of a text that isToken refuses.
const unnameable = "must be of A-Z, a-z, 0-9, '_' and '-'"

func isToken(s string) bool {
	token, err := contracts.EncodeToken(s)
	return err == nil && token == s
}

// The extension attributes of CloudEvents for the subject of an event, its recipients, and the earliest time of
// delivery in RFC 3339.
const (
	extensionAggregateType = "aggregatetype"
	extensionNotBefore     = "notbefore"
	extensionRecipientType = "recipienttype"
	extensionUserID        = "userid"
)

// noAggregate is the aggregate type of a CloudEvent when neither the event nor its subject names one.
const noAggregate = "CLOUDEVENT"

// Direct is the subject of an event that did not come by NATS.
const Direct = "events"

// Read reads an event from a message: an Event, by itself or in a CloudEvent, or any CloudEvent. The data of a
// CloudEvent becomes the payload, and its source is part of the event's id, as in CloudEvents.
func Read(subject string, header nats.Header, data []byte) (recipient.Event, error) {
	envelope, err := contracts.ParseCloudEvent(header, data)
	if err != nil {
		return recipient.Event{}, err
	}
	var probe struct {
		EventID json.RawMessage `json:"event_id"`
	}
	isObject := json.Unmarshal(envelope.Data, &probe) == nil
	if !named(envelope) || isObject && probe.EventID != nil {
		event, err := contracts.Decode[recipient.Event](envelope.Data)
		if err == nil && len(event.Route) > 0 && !strings.HasPrefix(subject, strings.TrimSuffix(recipient.RoutedSubjects, ">")) {
			err = contracts.Mistake("Event", "/route",
				"is not for a source of events: use POST /v1/notify, or a subject of "+recipient.RoutedSubjects)
		}
		return event, err
	}
	event := recipient.Event{
		EventID: envelope.MsgID(), EventType: envelope.Type, AggregateID: envelope.Subject, OccurredAt: envelope.Time,
		RecipientType: contracts.RecipientType(envelope.Extensions[extensionRecipientType]),
		UserID:        envelope.Extensions[extensionUserID], Payload: envelope.Data,
	}
	event.AggregateType = aggregateType(subject, envelope)
	if said := envelope.Extensions[extensionNotBefore]; said != "" {
		if event.NotBefore, err = time.Parse(time.RFC3339, said); err != nil {
			return event, contracts.Mistake("CloudEvent", "/"+extensionNotBefore, "must be a time such as 2026-01-02T15:04:05Z")
		}
	}
	if len(event.Payload) > 0 && !json.Valid(event.Payload) {
		if event.Payload, err = json.Marshal([]byte(event.Payload)); err != nil { // as base64
			return event, err
		}
	}
	return event, event.Validate()
}

// aggregateType returns the aggregate type that the sender names, or else that of the event's subject.
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

// named reports whether the message itself had the attributes of a CloudEvent.
func named(e contracts.CloudEvent) bool { return e.ID != "" && e.Source != "" && e.Type != "" }
