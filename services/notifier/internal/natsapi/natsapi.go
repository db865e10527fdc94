// Package natsapi serves the notifier as a NATS micro service (ADR-32), with the operations of the HTTP API, for
// callers that have a NATS connection already, and for the nats command line.
package natsapi

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
)

// Endpoints returns the endpoints of the notifier. Instances of one name share the requests.
func Endpoints(d *api.API) []service.Endpoint {
	h := handler{d}
	return []service.Endpoint{
		endpoint("publish", "Event", h.publish),
		endpoint("notify", "Notification", h.notify),
		ofEvent("cancel", d.Cancel),
		ofEvent("get", h.get),
		decoded("replay", aQuery, d.Replay),
		decoded("list", aQuery, d.Notifications),
		decoded("endpoints-list", aState, d.Endpoints),
		raw("endpoints-enable", `{"channel":"webhook","id":"…"}`, d.Enable),
		raw("templates-test", `{"template":"x","channel":"email","to":"a@example.com"}`, d.SendTest),
		decoded("endpoints-secret", anAddress, d.Secret),
		decoded("endpoints-rotate", anAddress, d.Rotate),
		decoded("endpoints-test", anAddress, d.Test),
		decoded("endpoints-replay", anAddress, d.ReplayAddress),
		decoded("users-get", aUser, d.ReadUser),
		decoded("users-put", aUser, d.WriteUser),
		decoded("users-delete", aUser, h.deleteUser),
		decoded("users-members", aMember, d.Members),
		decoded("users-list", `{"recipient_type":"CUSTOMER"}`, d.Users),
		{
			Answer: h.importUsers, Name: "users-import", Subject: "notifier.v1.users.import",
			Takes: "lines of JSON", Gives: "lines of JSON",
		},
	}
}

// Examples of requests.
const (
	aQuery    = `{"event_id":"…","state":"failed"}`
	aState    = `{"channel":"webhook","state":"disabled"}`
	aMember   = `{"recipient_type":"CUSTOMER","user_id":"…","add":[{"type":"RESTAURANT","id":"5"}]}`
	aUser     = `{"recipient_type":"CUSTOMER","user_id":"…"}`
	anAddress = `{"recipient_type":"CUSTOMER","user_id":"…","channel":"webhook","id":"phone"}`
)

// endpoint returns the endpoint at the subject that a name spells with dots. It answers with the JSON of a T.
func endpoint[T any](name, takes string, do func(context.Context, service.Request) (T, error)) service.Endpoint {
	return service.Endpoint{
		Name: name, Subject: "notifier.v1." + strings.ReplaceAll(name, "-", "."), Takes: takes,
		Gives: cmp.Or(reflect.TypeFor[T]().Name(), "{}"), // the type of an empty answer has no name
		Answer: func(ctx context.Context, r service.Request) ([]byte, error) {
			body, err := do(ctx, r)
			if err != nil {
				return nil, err
			}
			return json.Marshal(body)
		},
	}
}

// raw returns an endpoint whose requests the API itself decodes.
func raw[T any](name, takes string, do func(context.Context, []byte) (T, error)) service.Endpoint {
	return endpoint(name, takes, func(ctx context.Context, r service.Request) (T, error) { return do(ctx, r.Data) })
}

func decoded[R, T any](name, takes string, do func(context.Context, R) (T, error)) service.Endpoint {
	return raw(name, takes, func(ctx context.Context, data []byte) (body T, err error) {
		request, err := contracts.Read[R](data)
		if err != nil {
			return body, err
		}
		return do(ctx, request)
	})
}

// ofEvent returns an endpoint whose requests have to name an event.
func ofEvent[T any](name string, do func(context.Context, api.Cancellation) (T, error)) service.Endpoint {
	return decoded(name, `{"event_id":"…"}`, func(ctx context.Context, of api.Cancellation) (body T, err error) {
		if of.EventID == "" {
			return body, api.Mistake("request", "/event_id", "is required")
		}
		return do(ctx, of)
	})
}

type handler struct{ api *api.API }

func (h handler) publish(ctx context.Context, r service.Request) (done api.Accepted, err error) {
	header := maps.Clone(r.Header)
	header.Del(nats.MsgIdHdr) // the requester's message id, for another stream
	e, err := api.Read(api.Direct, header, r.Data)
	if err != nil {
		return done, err
	}
	return h.api.Publish(ctx, e)
}

func (h handler) notify(ctx context.Context, r service.Request) (done api.Accepted, err error) {
	e, err := h.api.ReadNotification(r.Data, r.Header.Get("Idempotency-Key"))
	if err != nil {
		return done, err
	}
	return h.api.Publish(ctx, e)
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
