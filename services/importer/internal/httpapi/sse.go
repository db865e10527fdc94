package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
)

// seen is the change that the client saw last. What is no change is none.
func seen(r *http.Request) uint64 {
	n, err := strconv.ParseUint(service.LastEventID(r), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// update is a job as it is after a change.
type update struct {
	job    imports.Job
	change uint64
}

// events answers GET /v1/imports/{job}/events with server-sent events: the job as it is, unless that is what Last-Event-ID
// names, and again after each change. It ends when the job has. A client that comes back after that gets 204, at which
// EventSource stops.
func (a *API) events(w http.ResponseWriter, r *http.Request) error {
	if err := a.allowed(r); err != nil {
		return err
	}
	sub, err := a.Service.Subscribe(r.Context(), r.PathValue("job"), seen(r))
	if err != nil {
		return err
	}
	defer sub.Close()
	if sub.Over() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	stream, err := service.OpenStream(w, r)
	for err == nil && !sub.Over() {
		var next update
		next, err = service.Wait(r.Context(), a.Heartbeat, func(ctx context.Context) (u update, err error) {
			u.job, u.change, err = sub.Next(ctx)
			return u, err
		})
		switch {
		case errors.Is(err, service.ErrIdle):
			err = stream.Heartbeat()
		case err == nil:
			err = stream.Event(strconv.FormatUint(next.change, 10), "status", next.job)
		}
	}
	return nil // the client has gone, and comes back with the id of what it saw
}
