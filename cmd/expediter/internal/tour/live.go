package tour

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer"
)

// over is the kind of the last event of a stream. On it the browser closes the stream, which it would otherwise open
// again and again.
const over = "over"

// retry is the time after which a browser reconnects, each time that it is cut off. It is short because the services are on
// the browser's machine.
const retry = 100 * time.Millisecond

// maxLine bounds a line of an event stream.
const maxLine = 1 << 20

// shown is an event for the page: a template and its data. It is the zero value for an event that the page does not
// need.
type shown struct {
	template string
	data     any
	over     bool // the last event
}

// followRequest answers GET /live/request?id=... with a row for each place, and again for each place that changes.
func (t *tour) followRequest(w http.ResponseWriter, r *http.Request) error {
	at := t.Enricher + "/v1/requests/" + service.PathEscape(r.URL.Query().Get("id")) + "/events"
	return t.relay(w, r, at, func(kind string, data []byte) (shown, error) {
		var event struct {
			snapshot

			PlaceID string `json:"placeId"`
			Patch   place  `json:"patch"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return shown{}, fmt.Errorf("tour: read an event of the enricher: %w", err)
		}
		if kind == contracts.TypeResultPatch {
			event.Patch.PlaceID = event.PlaceID
			event.Places = []place{event.Patch}
		}
		return shown{template: "changed", data: t.rows(event.snapshot), over: kind == "complete"}, nil
	})
}

// followImport answers GET /live/import?id=... with the import after each change.
func (t *tour) followImport(w http.ResponseWriter, r *http.Request) error {
	at := t.Importer + "/v1/imports/" + service.PathEscape(r.URL.Query().Get("id")) + "/events"
	return t.relay(w, r, at, func(_ string, data []byte) (shown, error) {
		var j importer.Job
		if err := json.Unmarshal(data, &j); err != nil {
			return shown{}, fmt.Errorf("tour: decode an import: %w", err)
		}
		view, err := t.job(r.Context(), j)
		return shown{template: "job", data: view, over: j.Status.Final()}, err
	})
}

// followInbox answers GET /live/inbox with the newest items after each change.
func (t *tour) followInbox(w http.ResponseWriter, r *http.Request) error {
	return t.relay(w, r, t.Notifier+"/v1/users/"+staff+"/inbox/events", func(string, []byte) (shown, error) {
		items, _, err := t.inbox(r.Context())
		return shown{template: "items", data: items}, err
	})
}

// relay repeats the event stream of a service as HTML, with the service's event ids, so that a browser that
// reconnects continues after the last one.
func (t *tour) relay(w http.ResponseWriter, r *http.Request, at string, show func(kind string, data []byte) (shown, error)) error {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, at, http.NoBody) //nolint:gosec // as below
	if err != nil {
		return fmt.Errorf("tour: %w", err)
	}
	req.Header.Set("Last-Event-ID", service.LastEventID(r))
	resp, err := t.client.Do(req) //nolint:gosec // of a service of this process
	if err != nil {
		return fmt.Errorf("tour: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		http.Error(w, "the service answers "+resp.Status, resp.StatusCode)
		return nil
	}
	stream, err := service.OpenStream(w, r, retry)
	if err == nil && resp.StatusCode == http.StatusNoContent {
		err = stream.HTML(service.LastEventID(r), over, over)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	var id, kind string
	for err == nil && lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), ":")
		switch value = strings.TrimPrefix(value, " "); name {
		case "id":
			id = value
		case "event":
			kind = value
		case "data": // the services write one line for each event
			err = repeat(stream, id, kind, []byte(value), show)
		case "":
			if ok { // a comment
				err = stream.Heartbeat()
			}
		}
	}
	return nil // the browser or the service has disconnected, and the browser comes back with the last id
}

func repeat(stream *service.Stream, id, kind string, data []byte, show func(string, []byte) (shown, error)) error {
	s, err := show(kind, data)
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := page.ExecuteTemplate(&html, s.template, s.data); err != nil {
		return fmt.Errorf("tour: %w", err)
	}
	if err := stream.HTML(id, "news", html.String()); err != nil || !s.over {
		return err
	}
	return stream.HTML(id, over, over)
}
