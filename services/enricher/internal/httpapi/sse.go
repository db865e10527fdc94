package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

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
	stream, err := service.OpenStream(w, r)
	for err == nil {
		var next event
		next, err = wait(r.Context(), sub, a.Heartbeat)
		switch {
		case errors.Is(err, service.ErrIdle):
			err = stream.Heartbeat()
		case err != nil || next.over:
			return nil
		default:
			err = stream.Event(next.ID, next.Type, next.Body)
		}
	}
	return nil // the client has gone; it comes back with its last event id
}

// event is an update, or the end of them.
type event struct {
	enrich.Update

	over bool
}

// wait returns the next event, or [service.ErrIdle] when none comes in time for the next heartbeat.
func wait(ctx context.Context, sub *enrich.Subscription, idle time.Duration) (event, error) {
	return service.Wait(ctx, idle, func(ctx context.Context) (event, error) {
		update, ok, err := sub.Next(ctx)
		return event{Update: update, over: err == nil && !ok}, err
	})
}
