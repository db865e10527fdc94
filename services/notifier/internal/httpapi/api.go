package httpapi

import (
	"cmp"
	"context"
	_ "embed"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
)

// OpenAPI describes the API. It is made of openapi.yaml by `go generate` in pkg/contracts.
//
//go:embed openapi.json
var OpenAPI []byte

// handler answers requests about events, notifications and inboxes.
type handler struct {
	api    *api.API
	items  *inapp.Inbox // that users see in the application
	router *service.Router
}

// Add adds the routes to the router.
func Add(router *service.Router, a *api.API, inbox *inapp.Inbox) {
	h := &handler{a, inbox, router}
	router.Handle("POST /v1/events", access.All(access.Publish), h.publish)
	router.Handle("GET /v1/expediter-inbox.js", access.Public(), script)
	router.Handle("POST /v1/notify", access.All(access.Notify), h.notify)
	router.Handle("GET /v1/events/{event}", access.All(access.Read), h.event)
	router.Handle("DELETE /v1/events/{event}", access.All(access.Operate), onQuery(cancellation, h.api.Cancel))
	router.Handle("GET /v1/events", access.All(access.Read), h.event)
	router.Handle("DELETE /v1/events", access.All(access.Operate), onQuery(cancellation, h.api.Cancel))
	router.Handle("GET /v1/notifications", access.All(access.Read), onQuery(query, h.api.Notifications))
	router.Handle("POST /v1/notifications/replay", access.All(access.Operate), onQuery(query, h.api.Replay))
	router.Handle("GET /v1/endpoints", access.All(access.Operate), onQuery(endpoints, h.api.Endpoints))
	router.Handle("POST /v1/endpoints/enable", access.All(access.Operate), onBody(maxName, h.api.Enable))
	router.Handle("POST /v1/templates/test", access.All(access.Operate), onBody(contracts.MaxBody, h.api.SendTest))
	h.addUsers(router)
	router.Handle("GET /v1/users/{user}/inbox", access.Own(access.Read), h.inbox)
	router.Handle("POST /v1/users/{user}/inbox", access.Own(access.Mark), h.markMany)
	router.Handle("PATCH /v1/users/{user}/inbox/{event}", access.Own(access.Mark), h.markOne)
	router.HandleStream("GET /v1/users/{user}/inbox/events", access.Own(access.Read), h.follow)
	router.HandleSocket("GET /v1/users/{user}/inbox/ws", access.Own(access.Read), h.webSocket)
}

// publish answers POST /v1/events: 202 for a new event, 200 for a known one, 409 for another event under a known id. The
// body is an Event, or the data of a CloudEvent in binary mode.
func (h *handler) publish(w http.ResponseWriter, r *http.Request) error {
	body, err := service.Body(w, r, contracts.MaxBody)
	if err != nil {
		return err
	}
	header := nats.Header{}
	for name, values := range r.Header {
		if lower := strings.ToLower(name); lower == "content-type" || strings.HasPrefix(lower, "ce-") {
			header[lower] = values
		}
	}
	e, err := api.Read(api.Direct, header, body)
	if err != nil {
		return err
	}
	if len(e.Recipients) > 0 && !access.From(r.Context()).May(access.Address) {
		return access.Forbidden("an event with recipients requires the scope %q", access.Address)
	}
	return h.accept(w, r, e)
}

// notify answers POST /v1/notify as publish does. The body is a notification.
func (h *handler) notify(w http.ResponseWriter, r *http.Request) error {
	body, err := service.Body(w, r, contracts.MaxBody)
	if err != nil {
		return err
	}
	if len(r.Header.Values("Idempotency-Key")) > 1 {
		return contracts.Mistake("request", "", "has the header Idempotency-Key twice")
	}
	e, err := h.api.ReadNotification(body, r.Header.Get("Idempotency-Key"))
	if err != nil {
		return err
	}
	for _, to := range e.Recipients {
		named := contracts.Recipient{Locale: to.Locale, RecipientType: to.RecipientType, UserID: to.UserID}
		if !reflect.DeepEqual(to, named) && !access.From(r.Context()).May(access.Address) {
			return access.Forbidden("recipients with more than ids require the scope %q", access.Address)
		}
	}
	return h.accept(w, r, e)
}

// accept publishes an event: 202 for a new one, 200 for a known one.
func (h *handler) accept(w http.ResponseWriter, r *http.Request, e contracts.Event) error {
	done, err := h.api.Publish(r.Context(), e)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/events/"+service.PathEscape(done.EventID))
	status := http.StatusAccepted
	if done.Duplicate {
		status = http.StatusOK
	}
	service.WriteJSON(w, status, done)
	return nil
}

// eventID returns the event id in the path, or in ?event, because a path that a client or a proxy normalizes cannot
// have "." or "..".
func eventID(r *http.Request) string { return cmp.Or(r.PathValue("event"), r.URL.Query().Get("event")) }

// event answers GET /v1/events/{event}, and GET /v1/events?event=..., with the event and the first of its notifications.
func (h *handler) event(w http.ResponseWriter, r *http.Request) error {
	e, err := h.api.Event(r.Context(), eventID(r))
	if err != nil {
		return err
	}
	q, err := query(r)
	if err != nil {
		return err
	}
	q.EventID = e.EventID
	page, err := h.api.Notifications(r.Context(), q)
	return reply(w, struct {
		api.Event
		api.Page
	}{e, page}, err)
}

// onQuery answers the requests without a body.
func onQuery[Q, T any](
	read func(*http.Request) (Q, error), do func(context.Context, Q) (T, error),
) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		q, err := read(r)
		if err != nil {
			return err
		}
		answer, err := do(r.Context(), q)
		return reply(w, answer, err)
	}
}

// onBody answers the requests whose bodies the API itself decodes. size bounds a body, in bytes.
func onBody[T any](size int64, do func(context.Context, []byte) (T, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := service.Body(w, r, size)
		if err != nil {
			return err
		}
		answer, err := do(r.Context(), body)
		return reply(w, answer, err)
	}
}

// reply answers with a body in JSON, unless there is an error.
func reply(w http.ResponseWriter, body any, err error) error {
	if err == nil {
		service.WriteJSON(w, http.StatusOK, body)
	}
	return err
}

// query reads ?event=...&user=...&type=...&channel=...&address=...&state=...&reason=...&since=...&limit=...&cursor=..., which select
// notifications.
func query(r *http.Request) (api.Query, error) {
	v := params(r, "address", "channel", "cursor", "event", "limit", "reason", "since", "state", "type", "user")
	return api.Query{
		Address: v.Get("address"), Channel: v.Get("channel"), Cursor: v.Get("cursor"), EventID: v.Get("event"), Limit: v.limit(),
		RecipientType: contracts.RecipientType(v.Get("type")), Reason: v.Get("reason"), Since: v.since(),
		State: deliveries.State(v.Get("state")), UserID: v.Get("user"),
	}, v.err()
}

// parameters has the parameters of a request, and their mistakes.
type parameters struct {
	url.Values

	mistakes contracts.Mistakes
}

// params returns the parameters of a request. A parameter that the route does not take is a mistake, because a request with a
// misspelt parameter would select more than its caller meant.
func params(r *http.Request, names ...string) *parameters {
	v := &parameters{Values: r.URL.Query()}
	for _, name := range slices.Sorted(maps.Keys(v.Values)) {
		if !slices.Contains(names, name) {
			v.mistakes.Add(true, "?"+name, "is not known here: want "+strings.Join(names, ", "))
		}
	}
	return v
}

// err returns one error with all mistakes, or nil.
func (v *parameters) err() error { return v.mistakes.In("query") }

// since returns ?since, the zero time when it is missing.
func (v *parameters) since() time.Time {
	at, err := time.Parse(time.RFC3339, v.Get("since"))
	v.mistakes.Add(err != nil && v.Get("since") != "", "?since", "must be a time such as 2026-12-01T08:00:00Z")
	return at
}

// limit returns ?limit, 0 when it is missing.
func (v *parameters) limit() int {
	n, err := strconv.Atoi(v.Get("limit"))
	wrong := v.Get("limit") != "" && (err != nil || n < 1 || n > api.MaxLimit)
	v.mistakes.Add(wrong, "?limit", "must be 1 to "+strconv.Itoa(api.MaxLimit))
	return n
}

// cancellation reads DELETE /v1/events/{event}?user=...&type=...&cursor=..., or /v1/events?event=... with the same parameters.
func cancellation(r *http.Request) (api.Cancellation, error) {
	v := params(r, "cursor", "event", "type", "user")
	return api.Cancellation{
		Cursor: v.Get("cursor"), EventID: eventID(r), RecipientType: contracts.RecipientType(v.Get("type")), UserID: v.Get("user"),
	}, v.err()
}

// maxName bounds the body of a request that names an endpoint.
const maxName = 4 << 10

// endpoints reads GET /v1/endpoints?channel=...&state=...&limit=...&cursor=..., which selects endpoints that fail.
func endpoints(r *http.Request) (api.EndpointQuery, error) {
	v := params(r, "channel", "cursor", "limit", "state")
	q := api.EndpointQuery{Channel: v.Get("channel"), Cursor: v.Get("cursor"), Limit: v.limit(), State: health.State(v.Get("state"))}
	return q, v.err()
}
