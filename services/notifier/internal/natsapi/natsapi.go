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

	SubjectUsersDelete  = "notifier.v1.users.delete"  // {"recipient_type","user_id"}
	SubjectUsersGet     = "notifier.v1.users.get"     // the same; answers the user and the ETag
	SubjectUsersImport  = "notifier.v1.users.import"  // lines of JSON; answers a line for each
	SubjectUsersList    = "notifier.v1.users.list"    // a query; answers a page of lines for an import
	SubjectUsersMembers = "notifier.v1.users.members" // the same as get, with add and remove; answers the memberships
	SubjectUsersPut     = "notifier.v1.users.put"     // the same as get, with a body; answers the user and the ETag
)

// Endpoints returns the endpoints of the notifier.
func Endpoints(d *api.API) []service.Endpoint {
	h := handler{d}
	return []service.Endpoint{
		{Answer: h.publish, Name: "publish", Subject: SubjectPublish, Takes: "Event", Gives: "Accepted"},
		{Answer: h.notify, Name: "notify", Subject: SubjectNotify, Takes: "Notification", Gives: "Accepted"},
		{Answer: ofEvent(d.Cancel), Name: "cancel", Subject: SubjectCancel, Takes: `{"event_id":"…"}`, Gives: "Cancelled"},
		{Answer: ofEvent(h.get), Name: "get", Subject: SubjectGet, Takes: `{"event_id":"…"}`, Gives: "Event"},
		{Answer: decoded(d.Replay, aQuery), Name: "replay", Subject: SubjectReplay, Takes: aQuery, Gives: "Replayed"},
		{Answer: decoded(d.Notifications, aQuery), Name: "list", Subject: SubjectList, Takes: aQuery, Gives: "Page"},
		{Answer: decoded(d.Endpoints, aState), Name: "endpoints", Subject: SubjectEndpoints, Takes: aState, Gives: "EndpointPage"},
		{Answer: raw(d.Enable), Name: "enable", Subject: SubjectEnable, Takes: `{"channel":"webhook","id":"…"}`, Gives: "Endpoint"},
		{
			Answer: raw(d.SendTest), Name: "templates-test", Subject: SubjectTest,
			Takes: `{"template":"x","channel":"email","to":"a@example.com"}`, Gives: "TestSent",
		},
		{Answer: decoded(d.Secret, anAddress), Name: "endpoints-secret", Subject: SubjectSecret, Takes: anAddress, Gives: "AddressSecrets"},
		{Answer: decoded(d.Rotate, anAddress), Name: "endpoints-rotate", Subject: SubjectRotate, Takes: anAddress, Gives: "AddressSecrets"},
		{Answer: decoded(d.Test, anAddress), Name: "endpoints-test", Subject: SubjectTestOne, Takes: anAddress, Gives: "TestSent"},
		{Answer: decoded(d.ReplayAddress, anAddress), Name: "endpoints-replay", Subject: SubjectReplayOne, Takes: anAddress, Gives: "Replayed"},
		{Answer: decoded(d.ReadUser, aUser), Name: "users-get", Subject: SubjectUsersGet, Takes: aUser, Gives: "User"},
		{Answer: decoded(d.WriteUser, aUser), Name: "users-put", Subject: SubjectUsersPut, Takes: aUser, Gives: "User"},
		{Answer: decoded(h.deleteUser, aUser), Name: "users-delete", Subject: SubjectUsersDelete, Takes: aUser, Gives: "{}"},
		{Answer: decoded(d.Members, aMember), Name: "users-members", Subject: SubjectUsersMembers, Takes: aMember, Gives: "Members"},
		{Answer: decoded(d.Users, aKind), Name: "users-list", Subject: SubjectUsersList, Takes: aKind, Gives: "UserPage"},
		{Answer: h.importUsers, Name: "users-import", Subject: SubjectUsersImport, Takes: "lines of JSON", Gives: "lines of JSON"},
	}
}

// Examples of requests.
const (
	aKind     = `{"recipient_type":"CUSTOMER"}`
	aQuery    = `{"event_id":"…","state":"failed"}`
	aState    = `{"channel":"webhook","state":"disabled"}`
	aMember   = `{"recipient_type":"CUSTOMER","user_id":"…","add":[{"type":"RESTAURANT","id":"5"}]}`
	aUser     = `{"recipient_type":"CUSTOMER","user_id":"…"}`
	anAddress = `{"recipient_type":"CUSTOMER","user_id":"…","channel":"webhook","id":"phone"}`
)

// answerer answers the requests of an endpoint.
type answerer = func(context.Context, service.Request) ([]byte, error)

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

func (h handler) get(ctx context.Context, of api.Cancellation) (api.Event, error) {
	return h.api.Event(ctx, of.EventID)
}

func (h handler) deleteUser(ctx context.Context, r api.UserRequest) (struct{}, error) {
	return struct{}{}, h.api.DeleteUser(ctx, r)
}

func (h handler) importUsers(ctx context.Context, r service.Request) ([]byte, error) {
	results, err := h.api.Import(ctx, r.Data)
	if err != nil {
		return nil, err
	}
	return api.Lines(results)
}

// raw returns the answerer of requests that the API itself decodes.
func raw[T any](do func(context.Context, []byte) (T, error)) answerer {
	return func(ctx context.Context, r service.Request) ([]byte, error) { return answer(do(ctx, r.Data)) }
}

// ofEvent returns the answerer of requests that have to name an event.
func ofEvent[T any](do func(context.Context, api.Cancellation) (T, error)) answerer {
	return decoded(func(ctx context.Context, of api.Cancellation) (body T, err error) {
		if of.EventID == "" {
			return body, invalid("/event_id", "is required")
		}
		return do(ctx, of)
	}, `{"event_id":"…"}`)
}

func decoded[R, T any](do func(context.Context, R) (T, error), example string) answerer {
	return func(ctx context.Context, r service.Request) ([]byte, error) {
		var request R
		if err := json.Unmarshal(r.Data, &request); err != nil {
			return nil, invalid("", "must be JSON such as "+example)
		}
		return answer(do(ctx, request))
	}
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
