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

// Endpoints returns the endpoints of the notifier. Instances of one name share the requests.
func Endpoints(d *api.API) []service.Endpoint {
	h := handler{d}
	return []service.Endpoint{
		{Answer: h.publish, Name: "publish", Subject: "notifier.v1.publish", Takes: "Event", Gives: "Accepted"},
		{Answer: h.notify, Name: "notify", Subject: "notifier.v1.notify", Takes: "Notification", Gives: "Accepted"},
		{Answer: ofEvent(d.Cancel), Name: "cancel", Subject: "notifier.v1.cancel", Takes: `{"event_id":"…"}`, Gives: "Cancelled"},
		{Answer: ofEvent(h.get), Name: "get", Subject: "notifier.v1.get", Takes: `{"event_id":"…"}`, Gives: "Event"},
		{Answer: decoded(d.Replay, aQuery), Name: "replay", Subject: "notifier.v1.replay", Takes: aQuery, Gives: "Replayed"},
		{Answer: decoded(d.Notifications, aQuery), Name: "list", Subject: "notifier.v1.list", Takes: aQuery, Gives: "Page"},
		{Answer: decoded(d.Endpoints, aState), Name: "endpoints", Subject: "notifier.v1.endpoints.list", Takes: aState, Gives: "EndpointPage"},
		{
			Answer: raw(d.Enable), Name: "enable", Subject: "notifier.v1.endpoints.enable",
			Takes: `{"channel":"webhook","id":"…"}`, Gives: "Endpoint",
		},
		{
			Answer: raw(d.SendTest), Name: "templates-test", Subject: "notifier.v1.templates.test",
			Takes: `{"template":"x","channel":"email","to":"a@example.com"}`, Gives: "TestSent",
		},
		{
			Answer: decoded(d.Secret, anAddress), Name: "endpoints-secret", Subject: "notifier.v1.endpoints.secret",
			Takes: anAddress, Gives: "AddressSecrets",
		},
		{
			Answer: decoded(d.Rotate, anAddress), Name: "endpoints-rotate", Subject: "notifier.v1.endpoints.rotate",
			Takes: anAddress, Gives: "AddressSecrets",
		},
		{
			Answer: decoded(d.Test, anAddress), Name: "endpoints-test", Subject: "notifier.v1.endpoints.test",
			Takes: anAddress, Gives: "TestSent",
		},
		{
			Answer: decoded(d.ReplayAddress, anAddress), Name: "endpoints-replay", Subject: "notifier.v1.endpoints.replay",
			Takes: anAddress, Gives: "Replayed",
		},
		{Answer: decoded(d.ReadUser, aUser), Name: "users-get", Subject: "notifier.v1.users.get", Takes: aUser, Gives: "User"},
		{Answer: decoded(d.WriteUser, aUser), Name: "users-put", Subject: "notifier.v1.users.put", Takes: aUser, Gives: "User"},
		{Answer: decoded(h.deleteUser, aUser), Name: "users-delete", Subject: "notifier.v1.users.delete", Takes: aUser, Gives: "{}"},
		{Answer: decoded(d.Members, aMember), Name: "users-members", Subject: "notifier.v1.users.members", Takes: aMember, Gives: "Members"},
		{Answer: decoded(d.Users, aKind), Name: "users-list", Subject: "notifier.v1.users.list", Takes: aKind, Gives: "UserPage"},
		{Answer: h.importUsers, Name: "users-import", Subject: "notifier.v1.users.import", Takes: "lines of JSON", Gives: "lines of JSON"},
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
	return json.Marshal(body)
}

func invalid(path, problem string) error {
	return &contracts.ValidationError{Type: "request", Fields: []contracts.FieldError{{Path: path, Problem: problem}}}
}
