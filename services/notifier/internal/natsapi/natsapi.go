// Package natsapi serves the notifier as a NATS micro service (ADR-32): what HTTP offers, for those who have a NATS
// connection already, and for the nats command line.
package natsapi

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/desk"
)

// The endpoints' subjects. Services of one name share the requests.
const (
	SubjectCancel    = "notifier.v1.cancel"           // {"event_id"}, and perhaps one user; answers what came of it
	SubjectEnable    = "notifier.v1.endpoints.enable" // {"channel","id"}; answers how the endpoint was
	SubjectEndpoints = "notifier.v1.endpoints.list"   // a query; answers a page of those that do not work
	SubjectGet       = "notifier.v1.get"              // {"event_id"}; answers what is known of the event
	SubjectList      = "notifier.v1.list"             // a query; answers a page of rows
	SubjectReplay    = "notifier.v1.replay"           // a query; answers how many rows are sent again
	SubjectPublish   = "notifier.v1.publish"          // an Event, or a CloudEvent in binary or structured mode
)

// Endpoints are what the notifier answers.
func Endpoints(d *desk.Desk) []service.Endpoint {
	a := api{d}
	return []service.Endpoint{
		{Answer: a.publish, Name: "publish", Subject: SubjectPublish, Takes: "Event", Gives: "Accepted"},
		{Answer: a.cancel, Name: "cancel", Subject: SubjectCancel, Takes: `{"event_id":"…"}`, Gives: "Cancelled"},
		{Answer: a.get, Name: "get", Subject: SubjectGet, Takes: `{"event_id":"…"}`, Gives: "Event"},
		{Answer: a.replay, Name: "replay", Subject: SubjectReplay, Takes: `{"event_id":"…","state":"failed"}`, Gives: "Replayed"},
		{Answer: a.list, Name: "list", Subject: SubjectList, Takes: `{"event_id":"…","state":"failed"}`, Gives: "Page"},
		{
			Answer: a.endpoints, Name: "endpoints", Subject: SubjectEndpoints,
			Takes: `{"channel":"webhook","state":"disabled"}`, Gives: "EndpointPage",
		},
		{Answer: a.enable, Name: "enable", Subject: SubjectEnable, Takes: `{"channel":"webhook","id":"…"}`, Gives: "Endpoint"},
	}
}

type api struct{ desk *desk.Desk }

func (a api) publish(ctx context.Context, r service.Request) ([]byte, error) {
	header := maps.Clone(r.Header)
	header.Del(nats.MsgIdHdr) // the requester's, for another stream
	e, err := desk.Read(desk.Direct, header, r.Data)
	if err != nil {
		return nil, err
	}
	return answer(a.desk.Publish(ctx, e))
}

func (a api) cancel(ctx context.Context, r service.Request) ([]byte, error) {
	var request struct {
		Cursor        string                  `json:"cursor"`
		EventID       string                  `json:"event_id"`
		RecipientType contracts.RecipientType `json:"recipient_type"`
		UserID        string                  `json:"user_id"`
	}
	if err := json.Unmarshal(r.Data, &request); err != nil || request.EventID == "" {
		return nil, invalid("/event_id", "is required")
	}
	return answer(a.desk.Cancel(ctx, desk.Cancellation(request)))
}

func (a api) get(ctx context.Context, r service.Request) ([]byte, error) {
	var request struct {
		EventID string `json:"event_id"`
	}
	if err := json.Unmarshal(r.Data, &request); err != nil || request.EventID == "" {
		return nil, invalid("/event_id", "is required")
	}
	return answer(a.desk.Event(ctx, request.EventID))
}

func (a api) list(ctx context.Context, r service.Request) ([]byte, error) {
	q, err := query(r)
	if err != nil {
		return nil, err
	}
	return answer(a.desk.Notifications(ctx, q))
}

func (a api) replay(ctx context.Context, r service.Request) ([]byte, error) {
	q, err := query(r)
	if err != nil {
		return nil, err
	}
	return answer(a.desk.Replay(ctx, q))
}

func query(r service.Request) (desk.Query, error) {
	var request struct {
		Channel       string                  `json:"channel"`
		Cursor        string                  `json:"cursor"`
		EventID       string                  `json:"event_id"`
		Limit         int                     `json:"limit"`
		Reason        string                  `json:"reason"`
		RecipientType contracts.RecipientType `json:"recipient_type"`
		State         deliveries.State        `json:"state"`
		UserID        string                  `json:"user_id"`
	}
	if err := json.Unmarshal(r.Data, &request); err != nil {
		return desk.Query{}, invalid("", `must be JSON such as {"event_id":"e1"}`)
	}
	return desk.Query(request), nil
}

func (a api) endpoints(ctx context.Context, r service.Request) ([]byte, error) {
	var q desk.EndpointQuery
	if err := json.Unmarshal(r.Data, &q); err != nil {
		return nil, invalid("", `must be JSON such as {"state":"disabled"}`)
	}
	return answer(a.desk.Endpoints(ctx, q))
}

func (a api) enable(ctx context.Context, r service.Request) ([]byte, error) {
	return answer(a.desk.Enable(ctx, r.Data))
}

func answer[T any](body T, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(body) //nolint:wrapcheck // cannot fail
}

func invalid(path, problem string) error {
	return &contracts.ValidationError{Type: "request", Fields: []contracts.FieldError{{Path: path, Problem: problem}}}
}
