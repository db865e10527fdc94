// Package natsapi serves the notifier as a NATS micro service (ADR-32), with the operations of the HTTP API, for
// callers that have a NATS connection already, and for the nats command line.
package natsapi

import (
	"context"
	"maps"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
)

// Endpoints returns the endpoints of the notifier. Instances of one name share the requests.
func Endpoints(d *api.API) []service.Endpoint {
	h := handler{d}
	return []service.Endpoint{
		service.Answering("notifier.v1.publish", "Event", "", h.publish),
		service.Answering("notifier.v1.notify", "Notification", "", h.notify),
		ofEvent("notifier.v1.cancel", d.Cancel),
		ofEvent("notifier.v1.get", h.get),
		service.Decoded("notifier.v1.replay", aQuery, "", d.Replay),
		service.Decoded("notifier.v1.list", aQuery, "", d.Notifications),
		service.Decoded("notifier.v1.endpoints.list", aState, "", d.Endpoints),
		raw("notifier.v1.endpoints.enable", `{"channel":"webhook","id":"…"}`, d.Enable),
		raw("notifier.v1.templates.test", `{"template":"x","channel":"email","to":"a@example.com"}`, d.SendTest),
		service.Decoded("notifier.v1.endpoints.secret", anAddress, "", d.Secret),
		service.Decoded("notifier.v1.endpoints.rotate", anAddress, "", d.Rotate),
		service.Decoded("notifier.v1.endpoints.test", anAddress, "", d.Test),
		service.Decoded("notifier.v1.endpoints.replay", anAddress, "", d.ReplayAddress),
		service.Decoded("notifier.v1.users.get", aUser, "", d.ReadUser),
		service.Decoded("notifier.v1.users.put", aUser, "", d.WriteUser),
		service.Decoded("notifier.v1.users.delete", aUser, "", h.deleteUser),
		service.Decoded("notifier.v1.users.members", aMember, "", d.Members),
		service.Decoded("notifier.v1.users.list", `{"recipient_type":"CUSTOMER"}`, "", d.Users),
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

// raw returns an endpoint whose requests the API itself decodes.
func raw[T any](subject, takes string, do func(context.Context, []byte) (T, error)) service.Endpoint {
	return service.Answering(subject, takes, "", func(ctx context.Context, r service.Request) (T, error) { return do(ctx, r.Data) })
}

// ofEvent returns an endpoint whose requests have to name an event.
func ofEvent[T any](subject string, do func(context.Context, api.Cancellation) (T, error)) service.Endpoint {
	return service.Decoded(subject, `{"event_id":"…"}`, "", func(ctx context.Context, of api.Cancellation) (body T, err error) {
		if of.EventID == "" {
			return body, contracts.Mistake("request", "/event_id", "is required")
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
