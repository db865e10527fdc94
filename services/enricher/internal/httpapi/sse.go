package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

// lastEventID is what the client saw last: the header that EventSource sends when it comes back, or the query parameter
// for those who cannot set headers.
func lastEventID(r *http.Request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get("last_event_id")
}

// events answers GET /v1/requests/{requestId}/events with server-sent events, as the HTML standard has them
// (https://html.spec.whatwg.org/multipage/server-sent-events.html): a snapshot, or what came after Last-Event-ID; then
// each change; then complete, and the end. A client that comes back after that gets 204, which tells EventSource to stop.
func (a *API) events(w http.ResponseWriter, r *http.Request) {
	sub, err := a.Service.Subscribe(r.Context(), r.PathValue("requestId"), lastEventID(r))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer sub.Close()
	if sub.Over() {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	s := stream{w: w, control: http.NewResponseController(w)}
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return // the server's deadline for reading a request would end the stream
	}
	if err := s.write("retry: 2000\n\n"); err != nil {
		return
	}
	for {
		update, ok, err := next(r.Context(), sub, a.Heartbeat)
		switch {
		case errors.Is(err, errIdle):
			err = s.write(": heartbeat\n\n")
		case err != nil || !ok:
			return
		default:
			err = s.event(update)
		}
		if err != nil {
			return // the client has gone, and comes back with the id of what it saw
		}
	}
}

// errIdle is returned when nothing happened for as long as a heartbeat takes.
var errIdle = errors.New("nothing happened")

func next(ctx context.Context, sub *enrich.Subscription, idle time.Duration) (enrich.Update, bool, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, idle, errIdle)
	defer cancel()
	return sub.Next(waiting)
}

// stream writes to a client that may have stopped to read.
type stream struct {
	w       io.Writer
	control *http.ResponseController
}

func (s stream) event(u enrich.Update) error {
	data, err := json.Marshal(u.Body)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return s.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", u.ID, u.Type, data))
}

func (s stream) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := io.WriteString(s.w, text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}
