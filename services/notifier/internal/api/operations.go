package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

//go:generate go test -run ^TestDescriptionIsCurrent$ . -update

// OpenAPI describes the operations.
//
//go:embed openapi.json
var OpenAPI []byte

// maxName bounds the body of a request that names an endpoint.
const maxName = 4 << 10

// Operations returns the operations of the notifier. items is the inbox that users see in the application.
func Operations(a *API, items *inapp.Inbox) []service.Op {
	all := append(a.ofEvents(), a.ofNotifications()...)
	all = append(append(all, a.ofPeople()...), a.ofAddresses()...)
	return append(all, inbox{items}.operations()...)
}

func (a *API) ofEvents() []service.Op {
	taken := map[int]string{http.StatusOK: "The event is known.", http.StatusAccepted: "The event is new."}
	publish := service.Op{
		Name: "publishEvent", Route: "POST /v1/events", Subject: "notifier.v1.publish", Need: access.All(access.Publish), Tag: "events",
		MaxBody: contracts.MaxBody, Summary: "Publishes an event.",
		Description: "The answer comes when the stream has acknowledged the event. Another event under a known id is 409: all fields count " +
			"except occurred_at. A CloudEvent is accepted in binary mode: with its attributes in headers that begin with ce-, and its data as " +
			"the body. An event with recipients requires the scope address, too.",
		Takes: map[string]any{"application/json": contracts.Event{}},
		Example: service.JSON(`{"event_id":"evt-001","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT","restaurant_id":5,` +
			`"payload":{"guests":4}}`),
		Good: taken, Headers: map[string]string{"Location": "The event."},
		Bad: []int{http.StatusConflict, http.StatusUnprocessableEntity},
	}
	notify := publish
	notify.Name, notify.Route, notify.Subject = "notify", "POST /v1/notify", "notifier.v1.notify"
	notify.Need, notify.Summary = access.All(access.Notify), "Notifies users without a rule."
	notify.Description = "It becomes an event. Recipients with more than ids require the scope address, too."
	notify.Takes = map[string]any{"application/json": service.Schema("Notify")}
	notify.Example = service.JSON(`{"event_id":"welcome-carla","recipients":[{"recipient_type":"CUSTOMER","user_id":"carla"}],` +
		`"payload":{"name":"Carla"},"channels":["inapp"]}`)
	get := service.Op{
		Name: "getEvent", Route: "GET /v1/events/{event}", Need: access.All(access.Read), Strict: true, Tag: "events",
		Summary: "Returns the state of an event, with the first of its notifications.", Good: map[int]string{http.StatusOK: "The event."},
		Bad: []int{http.StatusBadRequest, http.StatusNotFound},
	}
	getByQuery := get
	getByQuery.Name, getByQuery.Route = "getEventByQuery", "GET /v1/events"
	getByQuery.Summary = "Returns the state of an event whose id cannot be part of a path, such as a dot."
	end := service.Op{
		Name: "cancelEvent", Route: "DELETE /v1/events/{event}", Need: access.All(access.Operate), Strict: true, Tag: "events",
		Summary:     "Cancels the notifications of an event that are not sent yet, for all users or for one.",
		Description: "A digest is cancelled by its own id. An event that was not published is 404.",
		Good:        map[int]string{http.StatusOK: "The outcomes of the notifications."},
		Bad:         []int{http.StatusBadRequest, http.StatusNotFound, http.StatusConflict},
	}
	endByQuery := end
	endByQuery.Name, endByQuery.Route, endByQuery.Subject = "cancelEventByQuery", "DELETE /v1/events", "notifier.v1.cancel"
	endByQuery.Summary = "Cancels an event whose id cannot be part of a path."
	return []service.Op{
		service.NewOp(publish, a.publish), service.NewOp(notify, a.notify),
		service.NewOp(get, func(ctx context.Context, r EventByPath) (EventState, error) {
			r.EventID = cmp.Or(r.ID, r.EventID)
			return a.event(ctx, r.Query)
		}),
		service.NewOp(getByQuery, func(ctx context.Context, r EventByQuery) (EventState, error) {
			r.Query.EventID = r.EventID
			return a.event(ctx, r.Query)
		}),
		service.NewOp(service.Op{Subject: "notifier.v1.get"}, func(ctx context.Context, r EventName) (Event, error) {
			return a.Event(ctx, r.EventID)
		}),
		service.NewOp(end, func(ctx context.Context, r CancellationByPath) (Cancelled, error) {
			r.EventID = cmp.Or(r.ID, r.EventID)
			return a.Cancel(ctx, r.Cancellation)
		}),
		service.NewOp(endByQuery, func(ctx context.Context, r CancellationByQuery) (Cancelled, error) {
			r.Cancellation.EventID = r.EventID
			return a.Cancel(ctx, r.Cancellation)
		}),
	}
}

func (a *API) ofNotifications() []service.Op {
	list := service.Op{
		Name: "listNotifications", Route: "GET /v1/notifications", Subject: "notifier.v1.list", Need: access.All(access.Read), Strict: true,
		Tag: "notifications", Summary: "Lists notifications, with every attempt.",
		Good: map[int]string{http.StatusOK: "A page of the selected notifications."}, Bad: []int{http.StatusBadRequest},
	}
	replay := list
	replay.Name, replay.Route, replay.Subject = "replayNotifications", "POST /v1/notifications/replay", "notifier.v1.replay"
	replay.Need, replay.Summary = access.All(access.Operate), "Resends failed notifications under the same ids."
	replay.Description = "It resends all that the parameters select, and without parameters all that have failed."
	replay.Good = map[int]string{http.StatusOK: "The number of notifications."}
	endpoints := service.Op{
		Name: "listEndpoints", Route: "GET /v1/endpoints", Subject: "notifier.v1.endpoints.list", Need: access.All(access.Operate), Strict: true,
		Tag: "endpoints", Summary: "Lists the addresses of users that do not answer.",
		Good: map[int]string{http.StatusOK: "A page of the addresses."}, Bad: []int{http.StatusBadRequest},
	}
	enable := service.Op{
		Name: "enableEndpoint", Route: "POST /v1/endpoints/enable", Subject: "notifier.v1.endpoints.enable", Need: access.All(access.Operate),
		MaxBody: maxName, Tag: "endpoints", Summary: "Enables an address.",
		Example: service.JSON(`{"channel":"pigeon","id":"310df89304dd8d96a74d83bf096b05ce"}`),
		Good:    map[int]string{http.StatusOK: "The endpoint before the change."}, Bad: []int{http.StatusNotFound},
	}
	test := service.Op{
		Name: "sendTestMessage", Route: "POST /v1/templates/test", Subject: "notifier.v1.templates.test", Need: access.All(access.Operate),
		MaxBody: contracts.MaxBody, Tag: "templates", Summary: "Sends one message now that shows a template.",
		Description: "Its text begins with [test], and there is no notification for it.",
		Example:     service.JSON(`{"template":"welcome","channel":"sms","to":"+15550100","payload":{"name":"Carla"}}`),
		Good:        map[int]string{http.StatusOK: "The outcome."},
	}
	script := service.Op{
		Name: "getInboxElement", Route: "GET /v1/expediter-inbox.js", Need: access.Public(), Tag: "inbox",
		Summary: "Returns the elements of an inbox and its bell, as a module for pages.", Gives: map[string]any{"text/javascript": nil},
		Good: service.Versioned, Headers: map[string]string{"ETag": "Identifies the version of the answer."},
	}
	return []service.Op{
		service.NewOp(list, a.Notifications),
		service.NewOp(replay, func(ctx context.Context, r ReplayQuery) (Replayed, error) {
			r.Query.State = r.State
			return a.Replay(ctx, r.Query)
		}),
		service.NewOp(endpoints, a.Endpoints), service.NewOp(enable, a.Enable), service.NewOp(test, a.SendTest),
		service.NewRoute[service.Known](script, serveElement),
	}
}

// Publication is an event, or the data of a CloudEvent in binary mode.
type Publication struct {
	Body   []byte      `body:"true" json:"-"`
	Header nats.Header `header:"*"  json:"-"`
}

// publish publishes an event.
func (a *API) publish(ctx context.Context, r Publication) (Accepted, error) {
	header := nats.Header{} // without the requester's message id, which is for another stream
	for name, values := range r.Header {
		if lower := strings.ToLower(name); lower == "content-type" || strings.HasPrefix(lower, "ce-") {
			header[lower] = values
		}
	}
	e, err := Read(Direct, header, r.Body)
	if err != nil {
		return Accepted{}, err
	}
	if len(e.Recipients) > 0 && !may(ctx, access.Address) {
		return Accepted{}, access.Forbidden("an event with recipients requires the scope %q", access.Address)
	}
	return a.Publish(ctx, e)
}

// NotifyRequest is a notification without a rule.
type NotifyRequest struct {
	Body []byte `body:"true" json:"-"`

	// Key is the event_id of a body that has none. One of both is required.
	Key string `example:"welcome-carla" header:"Idempotency-Key" json:"-" jsonschema:"maxLength=320"`
}

// notify publishes a notification as an event.
func (a *API) notify(ctx context.Context, r NotifyRequest) (Accepted, error) {
	e, err := a.ReadNotification(r.Body, r.Key)
	if err != nil {
		return Accepted{}, err
	}
	for _, to := range e.Recipients {
		named := contracts.Recipient{Locale: to.Locale, RecipientType: to.RecipientType, UserID: to.UserID}
		if !reflect.DeepEqual(to, named) && !may(ctx, access.Address) {
			return Accepted{}, access.Forbidden("recipients with more than ids require the scope %q", access.Address)
		}
	}
	return a.Publish(ctx, e)
}

// may reports whether the caller has a scope. Callers over NATS are operators and have none.
func may(ctx context.Context, scope access.Scope) bool {
	caller := access.From(ctx)
	return len(caller.Scopes) == 0 || caller.May(scope)
}

// HTTP implements [service.Answer]: 202 for a new event, 200 for a known one.
func (done Accepted) HTTP(header http.Header) (status int, body any) {
	header.Set("Location", "/v1/events/"+service.PathEscape(done.EventID))
	if done.Duplicate {
		return http.StatusOK, done
	}
	return http.StatusAccepted, done
}

// EventName names an event.
type EventName struct {
	// EventID is the id of the event.
	EventID string `example:"evt-001" json:"event_id" jsonschema:"maxLength=320" query:"event" required:"true"`
}

// EventByPath names an event in a path.
type EventByPath struct {
	Query

	// ID is the id of the event. It precedes that of the query.
	ID string `example:"evt-001" json:"-" jsonschema:"maxLength=320" path:"event"`
}

// EventByQuery names an event whose id cannot be in a path, because a client or a proxy would normalize it.
type EventByQuery struct {
	Query

	// EventID is the id of the event.
	EventID string `example:"evt-001" json:"event_id" jsonschema:"maxLength=320" query:"event" required:"true"`
}

// CancellationByPath cancels an event in a path.
type CancellationByPath struct {
	Cancellation

	// ID is the id of the event. It precedes that of the query.
	ID string `example:"evt-001" json:"-" jsonschema:"maxLength=320" path:"event"`
}

// CancellationByQuery cancels an event whose id cannot be in a path.
type CancellationByQuery struct {
	Cancellation

	// EventID is the id of the event.
	EventID string `example:"evt-001" json:"event_id" jsonschema:"maxLength=320" query:"event" required:"true"`
}

// ReplayQuery selects notifications that have failed.
type ReplayQuery struct {
	Query

	// State is the state of the notifications, one of those that can be resent.
	State deliveries.State `example:"failed" json:"state,omitempty" jsonschema:"enum=failed,enum=bounced" query:"state"`
}

// EventState is the state of an event, with the first of its notifications.
type EventState struct {
	Event
	Page
}

// event returns the state of the event that a query names, and the first of its notifications.
func (a *API) event(ctx context.Context, q Query) (EventState, error) {
	e, err := a.Event(ctx, q.EventID)
	if err != nil {
		return EventState{}, err
	}
	page, err := a.Notifications(ctx, q)
	return EventState{e, page}, err
}

// element has the custom elements of the inbox and its bell, with the client for browsers. clients/typescript makes it.
//
//go:embed expediter-inbox.js
var element []byte

var elementTag = fmt.Sprintf(`"%x"`, sha256.Sum256(element))

// serveElement answers with the elements. Pages of the origins that the router trusts can also import it.
func serveElement(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Cache-Control", "no-cache") // browsers ask each time, and get the script when it has changed
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("ETag", elementTag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(element))
	return nil
}
