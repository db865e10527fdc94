// Package natsapi serves the notifier as a NATS micro service (ADR-32), with the operations of the HTTP API, for
// callers that have a NATS connection already, and for the nats command line.
package natsapi

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
)

// The endpoints' subjects. Instances of one name share the requests.
const (
	SubjectCancel    = "notifier.v1.cancel"           // {"event_id"} and an optional user; answers the outcomes of the rows
	SubjectEnable    = "notifier.v1.endpoints.enable" // {"channel","id"}; answers the endpoint's previous state
	SubjectEndpoints = "notifier.v1.endpoints.list"   // a query; answers a page of endpoints that do not work
	SubjectReplayOne = "notifier.v1.endpoints.replay" // a user's address; answers the number of its rows that are sent again
	SubjectRotate    = "notifier.v1.endpoints.rotate" // the same; answers the new secret
	SubjectSecret    = "notifier.v1.endpoints.secret" //nolint:gosec // a subject; answers the secret of one of a user's addresses
	SubjectTestOne   = "notifier.v1.endpoints.test"   // the same; answers the reply to a test message
	SubjectGet       = "notifier.v1.get"              // {"event_id"}; answers the state of the event
	SubjectList      = "notifier.v1.list"             // a query; answers a page of rows
	SubjectNotify    = "notifier.v1.notify"           // a notification; answers as publish does
	SubjectReplay    = "notifier.v1.replay"           // a query; answers the number of rows that are sent again
	SubjectPublish   = "notifier.v1.publish"          // an Event, or a CloudEvent in binary or structured mode
	SubjectTest      = "notifier.v1.templates.test"   // a message that shows a template; answers its outcome

	SubjectUsersDelete = "notifier.v1.users.delete" // {"recipient_type","user_id"} and an optional part
	SubjectUsersGet    = "notifier.v1.users.get"    // the same; answers the part and its ETag
	SubjectUsersImport = "notifier.v1.users.import" // lines of JSON; answers a line for each
	SubjectUsersList   = "notifier.v1.users.list"   // a query; answers a page of lines for an import
	SubjectUsersPut    = "notifier.v1.users.put"    // the same as get, with a body; answers the part and its ETag
)

// Endpoints returns the endpoints of the notifier.
func Endpoints(d *api.API) []service.Endpoint {
	h := handler{d}
	return []service.Endpoint{
		{Answer: h.publish, Name: "publish", Subject: SubjectPublish, Takes: "Event", Gives: "Accepted"},
		{Answer: h.notify, Name: "notify", Subject: SubjectNotify, Takes: "Notification", Gives: "Accepted"},
		{Answer: h.cancel, Name: "cancel", Subject: SubjectCancel, Takes: `{"event_id":"…"}`, Gives: "Cancelled"},
		{Answer: h.get, Name: "get", Subject: SubjectGet, Takes: `{"event_id":"…"}`, Gives: "Event"},
		{Answer: h.replay, Name: "replay", Subject: SubjectReplay, Takes: `{"event_id":"…","state":"failed"}`, Gives: "Replayed"},
		{Answer: h.list, Name: "list", Subject: SubjectList, Takes: `{"event_id":"…","state":"failed"}`, Gives: "Page"},
		{
			Answer: h.endpoints, Name: "endpoints", Subject: SubjectEndpoints,
			Takes: `{"channel":"webhook","state":"disabled"}`, Gives: "EndpointPage",
		},
		{Answer: h.enable, Name: "enable", Subject: SubjectEnable, Takes: `{"channel":"webhook","id":"…"}`, Gives: "Endpoint"},
		{
			Answer: func(ctx context.Context, r service.Request) ([]byte, error) { return answer(d.SendTest(ctx, r.Data)) }, Name: "templates-test",
			Subject: SubjectTest, Takes: `{"template":"x","channel":"email","to":"a@example.com"}`, Gives: "TestSent",
		},
		{Answer: address(d.Secret), Name: "endpoints-secret", Subject: SubjectSecret, Takes: anAddress, Gives: "AddressSecrets"},
		{Answer: address(d.Rotate), Name: "endpoints-rotate", Subject: SubjectRotate, Takes: anAddress, Gives: "AddressSecrets"},
		{Answer: address(d.Test), Name: "endpoints-test", Subject: SubjectTestOne, Takes: anAddress, Gives: "TestSent"},
		{Answer: address(d.ReplayAddress), Name: "endpoints-replay", Subject: SubjectReplayOne, Takes: anAddress, Gives: "Replayed"},
		{Answer: user(d.ReadUser), Name: "users-get", Subject: SubjectUsersGet, Takes: aUser, Gives: "User"},
		{Answer: user(d.WriteUser), Name: "users-put", Subject: SubjectUsersPut, Takes: aUser, Gives: "User"},
		{Answer: user(func(ctx context.Context, r api.UserRequest) (struct{}, error) {
			return struct{}{}, d.DeleteUser(ctx, r)
		}), Name: "users-delete", Subject: SubjectUsersDelete, Takes: aUser, Gives: "{}"},
		{Answer: h.users, Name: "users-list", Subject: SubjectUsersList, Takes: `{"recipient_type":"CUSTOMER"}`, Gives: "UserPage"},
		{Answer: h.importUsers, Name: "users-import", Subject: SubjectUsersImport, Takes: "lines of JSON", Gives: "lines of JSON"},
	}
}

type handler struct{ api *api.API }

func (h handler) publish(ctx context.Context, r service.Request) ([]byte, error) {
	header := maps.Clone(r.Header)
	header.Del(nats.MsgIdHdr) // the requester's message id, for another stream
	e, err := api.Read(api.Direct, header, r.Data)
	if err != nil {
		return nil, err
	}
	return answer(h.api.Publish(ctx, e))
}

func (h handler) notify(ctx context.Context, r service.Request) ([]byte, error) {
	return answer(h.api.Notify(ctx, r.Data, r.Header.Get("Idempotency-Key")))
}

func (h handler) cancel(ctx context.Context, r service.Request) ([]byte, error) {
	var request api.Cancellation
	if err := json.Unmarshal(r.Data, &request); err != nil || request.EventID == "" {
		return nil, invalid("/event_id", "is required")
	}
	return answer(h.api.Cancel(ctx, request))
}

func (h handler) get(ctx context.Context, r service.Request) ([]byte, error) {
	var request struct {
		EventID string `json:"event_id"`
	}
	if err := json.Unmarshal(r.Data, &request); err != nil || request.EventID == "" {
		return nil, invalid("/event_id", "is required")
	}
	return answer(h.api.Event(ctx, request.EventID))
}

func (h handler) list(ctx context.Context, r service.Request) ([]byte, error) {
	q, err := query(r)
	if err != nil {
		return nil, err
	}
	return answer(h.api.Notifications(ctx, q))
}

func (h handler) replay(ctx context.Context, r service.Request) ([]byte, error) {
	q, err := query(r)
	if err != nil {
		return nil, err
	}
	return answer(h.api.Replay(ctx, q))
}

func query(r service.Request) (api.Query, error) {
	var q api.Query
	if err := json.Unmarshal(r.Data, &q); err != nil {
		return q, invalid("", `must be JSON such as {"event_id":"e1"}`)
	}
	return q, nil
}

func (h handler) endpoints(ctx context.Context, r service.Request) ([]byte, error) {
	var q api.EndpointQuery
	if err := json.Unmarshal(r.Data, &q); err != nil {
		return nil, invalid("", `must be JSON such as {"state":"disabled"}`)
	}
	return answer(h.api.Endpoints(ctx, q))
}

func (h handler) enable(ctx context.Context, r service.Request) ([]byte, error) {
	return answer(h.api.Enable(ctx, r.Data))
}

// aUser is an example of a request about a user.
const aUser = `{"recipient_type":"CUSTOMER","user_id":"…","part":"addresses"}`

// anAddress is an example of a request about a user's address.
const anAddress = `{"recipient_type":"CUSTOMER","user_id":"…","channel":"webhook","id":"phone"}`

// user returns the handler of requests about a user, and address the handler of requests about a user's address.
func user[T any](do func(context.Context, api.UserRequest) (T, error)) func(context.Context, service.Request) ([]byte, error) {
	return decoded(do, aUser)
}

func address[T any](do func(context.Context, api.AddressRequest) (T, error)) func(context.Context, service.Request) ([]byte, error) {
	return decoded(do, anAddress)
}

func decoded[R, T any](do func(context.Context, R) (T, error), example string) func(context.Context, service.Request) ([]byte, error) {
	return func(ctx context.Context, r service.Request) ([]byte, error) {
		var request R
		if err := json.Unmarshal(r.Data, &request); err != nil {
			return nil, invalid("", "must be JSON such as "+example)
		}
		return answer(do(ctx, request))
	}
}

func (h handler) users(ctx context.Context, r service.Request) ([]byte, error) {
	var q api.UserQuery
	if err := json.Unmarshal(r.Data, &q); err != nil {
		return nil, invalid("", `must be JSON such as {"recipient_type":"CUSTOMER"}`)
	}
	return answer(h.api.Users(ctx, q))
}

func (h handler) importUsers(ctx context.Context, r service.Request) ([]byte, error) {
	results, err := h.api.Import(ctx, r.Data)
	if err != nil {
		return nil, err
	}
	return api.Lines(results)
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
