// Package api has the operations of the enricher: requests, their events as SSE and over WebSocket, and over NATS (ADR-32) for
// programs that have a connection and for the nats command line. Instances of one name share the requests over NATS.
package api

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

//go:generate go test -run ^TestDescriptionIsCurrent$ . -update

// OpenAPI describes the operations.
//
//go:embed openapi.json
var OpenAPI []byte

// Operations returns the operations of the enricher.
func Operations(s *enrich.Service) []service.Op {
	a := api{s}
	own := service.Op{Need: access.Own(access.Read), Bad: []int{http.StatusNotFound}, Tag: "requests"}
	events, get, socket := own, own, own
	get.Name, get.Route, get.Subject = "getRequest", "GET /v1/requests/{requestId}", "enricher.v1.get"
	get.Summary = "Returns the states of the places of a request."
	get.Good = map[int]string{http.StatusOK: "The states of all places of the request."}
	events.Name, events.Route = "followRequest", "GET /v1/requests/{requestId}/events"
	events.Summary = "Sends the results of a request as server-sent events."
	events.Description = "A snapshot, or the changes after Last-Event-ID; then each change; then complete, and the end. An id that is " +
		"not known gets reset and a snapshot. The name of an event is its type."
	events.Gives = map[string]any{"text/event-stream": service.Schema("Update")}
	events.Good = map[int]string{
		http.StatusOK: "The data of each event.", http.StatusNoContent: "The client has seen the end, and need not come back.",
	}
	socket.Name, socket.Route = "followRequestBySocket", "GET /v1/requests/{requestId}/ws"
	socket.Summary = "Sends the results of a request over WebSocket."
	socket.Description = "Every frame is one JSON object with a type. Without last_event_id they are RESULT_PATCH frames alone; " +
		"with it, empty or not, they are the events of the event stream, each with its id in eventId."
	socket.Good = map[int]string{http.StatusSwitchingProtocols: "The frames, see Frame."}
	return append(service.Follow(events, socket, a.follow, event, frames),
		service.NewOp(service.Op{
			Name: "enrich", Route: "POST /v1/enrich", Subject: "enricher.v1.enrich", Need: access.Own(access.Publish),
			MaxBody: contracts.MaxBody, Bad: []int{http.StatusConflict}, Tag: "requests", Summary: "Looks up places.",
			Description: "A caller that is bound to a user uses request ids that begin with the user's id, escaped as in a query, and a colon.",
			Example: service.JSON(`{"requestId":"hello","cityText":"Tel Aviv","results":` +
				`[{"placeId":"p1","name":"Café Alma Levana","address":"Rothschild Blvd 71"}]}`),
			Gives: map[string]any{"application/json": contracts.EnrichResponse{}},
			Good: map[int]string{
				http.StatusOK: "The same places, each with the states of its providers. With pending 0 it is complete, and nothing follows.",
			},
			Headers: map[string]string{"Link": `The events of the request (rel="monitor"), while something is pending.`},
		}, a.enrich),
		service.NewOp(get, a.get),
		service.NewOp(service.Op{Subject: "enricher.v1.place"}, a.place),
	)
}

type api struct{ service *enrich.Service }

// own returns an error when the caller is bound to a user and the request's id does not begin with the user's. It completes
// an empty id.
func own(ctx context.Context, requestID *string) error {
	user := access.From(ctx).User
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

// Lookup is a request for places.
type Lookup struct {
	Body contracts.EnrichRequest `body:"true" json:"-"`

	// Wait is how long to wait for results, such as 5s, at most 60s. It replaces waitMs of the body.
	Wait string `example:"1ms" json:"-" query:"wait"`
}

// found is the answer to a Lookup.
type found struct{ contracts.EnrichResponse }

// HTTP implements [service.Answer].
func (f found) HTTP(header http.Header) (status int, body any) {
	if f.Pending > 0 {
		header.Set("Link", `</v1/requests/`+service.PathEscape(f.RequestID)+`/events>; rel="monitor"`)
	}
	return http.StatusOK, f
}

func (a api) enrich(ctx context.Context, r Lookup) (found, error) {
	if err := own(ctx, &r.Body.RequestID); err != nil {
		return found{}, err
	}
	if r.Wait != "" {
		d, err := time.ParseDuration(r.Wait)
		if err != nil || d < 0 || d > contracts.MaxWait {
			return found{}, contracts.Mistake("query", "?wait", "must be a duration such as 5s, at most "+contracts.MaxWait.String())
		}
		r.Body.WaitMS = int(d.Milliseconds())
	}
	answer, err := a.service.Enrich(ctx, r.Body)
	return found{answer}, err
}

// PlaceRequest names a place.
type PlaceRequest struct {
	PlaceID string `json:"placeId"`
}

// Place has what is known of a place.
type Place struct {
	Lookups []enrich.Lookup `json:"lookups"`
	PlaceID string          `json:"placeId"`
}

func (a api) place(ctx context.Context, r PlaceRequest) (Place, error) {
	if _, err := contracts.EncodeToken(r.PlaceID); err != nil {
		return Place{}, contracts.Mistake("request", "/placeId", fmt.Sprintf("must be an id of 1 to %d bytes", contracts.MaxID))
	}
	known, err := a.service.Place(ctx, r.PlaceID)
	return Place{Lookups: known, PlaceID: r.PlaceID}, err
}

// ByID names a request.
type ByID struct {
	// RequestID is the id of the request.
	RequestID string `example:"hello" json:"requestId" jsonschema:"maxLength=320" path:"requestId"`
}

// get returns the state of a request, for clients that poll.
func (a api) get(ctx context.Context, r ByID) (enrich.Snapshot, error) {
	feed, err := a.follow(ctx, r, "")
	if err != nil {
		return enrich.Snapshot{}, err
	}
	defer feed.Close()
	update, err := feed.Next(ctx)
	snapshot, _ := update.Body.(enrich.Snapshot) // a subscription that does not resume begins with one
	return snapshot, err
}

// follow returns the changes of a request that the caller may see.
func (a api) follow(ctx context.Context, r ByID, lastEventID string) (service.Feed[enrich.Update], error) {
	if err := own(ctx, &r.RequestID); err != nil {
		return nil, err
	}
	sub, err := a.service.Subscribe(ctx, r.RequestID, lastEventID)
	if err != nil {
		return nil, err
	}
	return sub, nil
}

func event(u enrich.Update) service.Event { return service.Event{ID: u.ID, Type: u.Type, Body: u.Body} }

// frames returns the events of the event stream, each with its id as the last member. A plain client gets only the RESULT_PATCH
// frames that existing front ends know, also for results from before.
func frames(u enrich.Update, resumes bool) (all []any) {
	if resumes {
		return []any{frame(u)}
	}
	switch body := u.Body.(type) {
	case contracts.ResultPatch:
		all = append(all, body)
	case enrich.Snapshot:
		for _, patch := range body.Patches() {
			all = append(all, patch)
		}
	}
	return all
}

// frame is an update that writes its id.
type frame enrich.Update

// MarshalJSON implements [json.Marshaler].
func (f frame) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(f.Body)
	if err == nil && f.ID != "" {
		data = fmt.Appendf(data[:len(data)-1], `,"eventId":%q}`, f.ID)
	}
	return data, err
}
