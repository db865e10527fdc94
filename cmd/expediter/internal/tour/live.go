package tour

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/services/importer"
)

// over is the kind of the last event of a stream. On it the browser closes the stream, which it would otherwise open
// again and again.
const over = "over"

// retry is the time after which a browser reconnects, each time that it is cut off. It is short because the services are on
// the browser's machine.
const retry = 100 * time.Millisecond

// shown is an event for the page: a template and its data. It is the zero value for an event that the page does not
// need.
type shown struct {
	template string
	data     any
	over     bool // the last event
}

// followRequest answers GET /live/request?id=... with a row for each place, and again for each place that changes.
func (t *tour) followRequest(w http.ResponseWriter, r *http.Request) error {
	at := "/v1/requests/" + service.PathEscape(r.URL.Query().Get("id")) + "/events"
	return relay(w, r, t.enricher, at, func(e api.Event) (shown, error) {
		places, err := api.Places(e)
		return shown{template: "changed", data: t.rows(places), over: e.Kind == "complete"}, err
	})
}

// followImport answers GET /live/import?id=... with the import after each change.
func (t *tour) followImport(w http.ResponseWriter, r *http.Request) error {
	at := "/v1/imports/" + service.PathEscape(r.URL.Query().Get("id")) + "/events"
	return relay(w, r, t.importer, at, func(e api.Event) (shown, error) {
		var j importer.Job
		if err := json.Unmarshal(e.Data, &j); err != nil {
			return shown{}, fmt.Errorf("tour: decode an import: %w", err)
		}
		view, err := t.job(r.Context(), j)
		return shown{template: "job", data: view, over: j.Status.Final()}, err
	})
}

// followInbox answers GET /live/inbox with the newest items after each change.
func (t *tour) followInbox(w http.ResponseWriter, r *http.Request) error {
	return relay(w, r, t.notifier, "/v1/users/"+staff+"/inbox/events", func(api.Event) (shown, error) {
		items, _, err := t.inbox(r.Context())
		return shown{template: "items", data: items}, err
	})
}

// relay repeats the event stream of a service as HTML, with the service's event ids, so that a browser that
// reconnects continues after the last one.
func relay(w http.ResponseWriter, r *http.Request, from *api.Client, path string, show func(api.Event) (shown, error)) error {
	answer, err := from.Open(r.Context(), path, service.LastEventID(r))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return nil
	}
	defer answer.Body.Close()
	stream, err := service.OpenStream(w, r, retry)
	if err == nil && answer.StatusCode == http.StatusNoContent {
		err = stream.HTML(service.LastEventID(r), over, over)
	}
	for e, lost := range api.Events(answer.Body) {
		if err != nil || lost != nil || repeat(stream, e, show) != nil {
			break // the browser or the service has disconnected, and the browser comes back with the last id
		}
	}
	return nil
}

func repeat(stream *service.Stream, e api.Event, show func(api.Event) (shown, error)) error {
	if e.Data == nil {
		return stream.Heartbeat()
	}
	s, err := show(e)
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := page.ExecuteTemplate(&html, s.template, s.data); err != nil {
		return fmt.Errorf("tour: %w", err)
	}
	if err := stream.HTML(e.ID, "news", html.String()); err != nil || !s.over {
		return err
	}
	return stream.HTML(e.ID, over, over)
}
