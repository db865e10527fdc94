package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

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
		return a.tell(ctx, sub, s.Heartbeat, func(u enrich.Update) error { return send(s, u) })
	})
	return nil
}

// tell sends the updates of a subscription until its end, and heartbeats between them.
func (a *api) tell(ctx context.Context, sub *enrich.Subscription, beat func() error, send func(enrich.Update) error) error {
	for !sub.Over() {
		next, err := service.Wait(ctx, a.Heartbeat, sub.Next)
		switch {
		case errors.Is(err, service.ErrIdle):
			err = beat()
		case err == nil:
			err = send(next)
		}
		if err != nil {
			return err
		}
	}
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
		_ = a.tell(r.Context(), sub, stream.Heartbeat, send) // the client has gone; it comes back with its last event id
	}
	return nil
}
