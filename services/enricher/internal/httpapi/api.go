package httpapi

import (
	"cmp"
	"crypto/rand"
	_ "embed"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
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

const defaultHeartbeat = 15 * time.Second

// api answers requests about places.
type api struct{ Config }

// Add adds the routes to the router.
func Add(cfg Config) {
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, defaultHeartbeat)
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
			return &contracts.ValidationError{Type: "query", Fields: []contracts.FieldError{
				{Path: "?wait", Problem: "must be a duration such as 5s, at most " + contracts.MaxWait.String()},
			}}
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
