package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

// OpenAPI describes the API. It is made of openapi.yaml by `go generate` in pkg/contracts.
//
//go:embed openapi.json
var OpenAPI []byte

// Config describes the API.
type Config struct {
	// Heartbeat is the time after which an idle event stream gets a comment, so that proxies keep it open. Defaults to
	// 15 seconds.
	Heartbeat time.Duration

	// Router has the routes that every service has. Required.
	Router *service.Router

	// Service answers the requests. Required.
	Service *enrich.Service
}

// api answers requests about places.
type api struct{ Config }

// Add adds the routes to the router.
func Add(cfg Config) {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, service.Heartbeat)
	a := &api{cfg}
	cfg.Router.Handle("POST /v1/enrich", access.Own(access.Publish), a.enrich)
	cfg.Router.Handle("GET /v1/requests/{requestId}", access.Own(access.Read), a.request)
	cfg.Router.HandleStream("GET /v1/requests/{requestId}/events", access.Own(access.Read), a.events)
	cfg.Router.HandleSocket("GET /v1/requests/{requestId}/ws", access.Own(access.Read), a.webSocket)
}

// own returns an error when the caller is bound to a user and the request's id does not begin with the user's. It completes
// an empty id.
func own(r *http.Request, requestID *string) error {
	user := access.From(r.Context()).User
	if user == "" {
		return nil
	}
	prefix := url.QueryEscape(user) + ":" // when escaped, no user's id begins with the id of another and a colon
	if *requestID == "" {
		*requestID = prefix + rand.Text()
	}
	if !strings.HasPrefix(*requestID, prefix) {
		return access.Forbidden("the requestId must begin with %.200q", prefix)
	}
	return nil
}

// subscribe returns the changes of a request that the caller may see.
func (a *api) subscribe(r *http.Request, lastEventID string) (*enrich.Subscription, error) {
	id := r.PathValue("requestId")
	if err := own(r, &id); err != nil {
		return nil, err
	}
	return a.Service.Subscribe(r.Context(), id, lastEventID)
}

// enrich answers POST /v1/enrich. The query parameter wait, a duration such as 5s, replaces waitMs of the body.
func (a *api) enrich(w http.ResponseWriter, r *http.Request) error {
	body, err := service.Body(w, r, contracts.MaxBody)
	if err != nil {
		return err
	}
	req, err := contracts.Decode[contracts.EnrichRequest](body)
	if err != nil {
		return err
	}
	if err := own(r, &req.RequestID); err != nil {
		return err
	}
	if wait := r.URL.Query().Get("wait"); wait != "" {
		d, err := time.ParseDuration(wait)
		if err != nil || d < 0 || d > contracts.MaxWait {
			return contracts.Mistake("query", "?wait", "must be a duration such as 5s, at most "+contracts.MaxWait.String())
		}
		req.WaitMS = int(d.Milliseconds())
	}
	resp, err := a.Service.Enrich(r.Context(), req)
	if err != nil {
		return err
	}
	data, err := contracts.Encode(resp)
	if err != nil {
		return err
	}
	data = append(data, '\n') // for terminals
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if resp.Pending > 0 {
		w.Header().Set("Link", `</v1/requests/`+service.PathEscape(resp.RequestID)+`/events>; rel="monitor"`)
	}
	_, _ = w.Write(data) //nolint:gosec // JSON, and said to be
	return nil
}

// request answers GET /v1/requests/{requestId} with the state of the request, for clients that poll.
func (a *api) request(w http.ResponseWriter, r *http.Request) error {
	sub, err := a.subscribe(r, "")
	if err != nil {
		return err
	}
	defer sub.Close()
	update, err := sub.Next(r.Context())
	if err != nil {
		return err
	}
	service.WriteJSON(w, http.StatusOK, update.Body)
	return nil
}

// webSocket answers GET /v1/requests/{requestId}/ws. Every frame is one JSON object with a type. A plain client gets only
// the RESULT_PATCH frames that existing front ends know, also for results from before. A client that gives last_event_id,
// empty or not, gets the events of an event stream: a snapshot first, an eventId in every frame, and the end.
func (a *api) webSocket(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	send := sendPatches
	if query.Has("last_event_id") {
		send = sendResumable
	}
	sub, err := a.subscribe(r, query.Get("last_event_id"))
	if err != nil {
		return err
	}
	defer sub.Close()
	a.Router.ServeSocket(w, r, func(ctx context.Context, s *service.Socket) error {
		return service.Relay(ctx, s, a.Heartbeat, sub.Next, func(u enrich.Update) error { return send(s, u) })
	})
	return nil
}

// sendPatches sends the patches of an update.
func sendPatches(s *service.Socket, u enrich.Update) error {
	switch body := u.Body.(type) {
	case contracts.ResultPatch:
		return s.Frame(body)
	case enrich.Snapshot:
		for _, patch := range body.Patches() {
			if err := s.Frame(patch); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendResumable sends an update with its id as the last member.
func sendResumable(s *service.Socket, u enrich.Update) error {
	data, err := json.Marshal(u.Body)
	if err != nil {
		return fmt.Errorf("encode update: %w", err)
	}
	if u.ID != "" {
		data = fmt.Appendf(data[:len(data)-1], `,"eventId":%q}`, u.ID)
	}
	return s.Frame(json.RawMessage(data))
}

// events answers GET /v1/requests/{requestId}/events with server-sent events: a snapshot, or the changes after
// Last-Event-ID; then each change; then complete, and the end. A client that comes back after that gets 204, which makes
// EventSource stop.
func (a *api) events(w http.ResponseWriter, r *http.Request) error {
	sub, err := a.subscribe(r, service.LastEventID(r))
	if err != nil {
		return err
	}
	defer sub.Close()
	if sub.Over() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	stream, err := service.OpenStream(w, r, service.Retry)
	if err == nil {
		send := func(u enrich.Update) error { return stream.Event(u.ID, u.Type, u.Body) }
		_ = service.Relay(r.Context(), stream, a.Heartbeat, sub.Next, send) // the client has gone; it comes back with its last event id
	}
	return nil
}
