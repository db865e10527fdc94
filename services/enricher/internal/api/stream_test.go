package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/internal/api"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// found is the frame of the document for the place when it is found.
const found = `{"type":"RESULT_PATCH","requestId":"r","placeId":"ChIJ123","patch":{"providers":{"wolt":` +
	`{"status":"FOUND","url":"https://wolt.test/Pizza-House"}},"wolt":{"status":"FOUND","url":"https://wolt.test/Pizza-House"}}}`

// one is a place that the document knows.
var one = contracts.Restaurant{PlaceID: "ChIJ123", Name: "Pizza House", Address: "Harbour Road 1", CityText: "Haifa"}

// begin starts an instance whose provider waits for let, and asks for one place.
func begin(t *testing.T, o options) (i *instance, let func()) {
	t.Helper()
	p := fakeProvider{let: make(chan struct{}, 10)}
	o.Providers, o.works = []provider.Provider{p}, true
	i = start(t, natstest.Server(t), o)
	i.ask(t, contracts.EnrichRequest{RequestID: "r", Results: []contracts.Restaurant{one}})
	return i, func() { p.let <- struct{}{} }
}

// stream is an open event stream.
type stream struct {
	io.Reader

	status int
	header http.Header
}

// open opens an event stream.
func open(t *testing.T, i *instance, last string) stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req := check.Must(http.NewRequestWithContext(ctx, http.MethodGet, i.URL+"/v1/requests/r/events", http.NoBody))(t)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp := check.Must(i.Client().Do(req))(t)
	t.Cleanup(func() { resp.Body.Close() })
	return stream{resp.Body, resp.StatusCode, resp.Header}
}

// read reads events of a stream until its end.
func read(t *testing.T, r io.Reader) []event {
	t.Helper()
	var list []event
	check.ErrorIs(t, events(r, func(e event) bool { list = append(list, e); return true }), errEnd)
	return list
}

func kinds(list []event) (kinds []string) {
	for _, e := range list {
		kinds = append(kinds, e.kind)
	}
	return kinds
}

// TestEventStream reads one to its end, and the bytes of it as a browser would see them.
func TestEventStream(t *testing.T) {
	t.Parallel()
	i, let := begin(t, options{heartbeat: time.Millisecond})
	resp := open(t, i, "")
	check.Equal(t, []string{resp.header.Get("Content-Type"), resp.header.Get("Cache-Control"), resp.header.Get("X-Accel-Buffering")},
		[]string{"text/event-stream", "no-store", "no"})
	lines := bufio.NewReader(resp)
	var raw strings.Builder
	for !strings.Contains(raw.String(), ": heartbeat\n\n: heartbeat\n\n") {
		raw.WriteString(check.Must(lines.ReadString('\n'))(t))
	}
	check.That(t, strings.HasPrefix(raw.String(), "retry: 2000\n\nid: "), "the stream begins with %q", raw.String())
	let()
	list := read(t, io.MultiReader(strings.NewReader(raw.String()), lines))
	check.Require(t, slices.Equal(kinds(list), []string{"snapshot", "RESULT_PATCH", "complete"}), "events are %v", kinds(list))
	check.Equal(t, list[1].data, found)

	// A client that comes back after the end is told to stop.
	for _, e := range list[1:] {
		again := open(t, i, e.id)
		check.That(t, again.status == http.StatusNoContent, "after %s it is %d, want 204", e.kind, again.status)
	}
	// One that had only the snapshot gets the rest, also by the query parameter.
	resp = open(t, i, list[0].id)
	check.Equal(t, kinds(read(t, resp)), []string{"RESULT_PATCH", "complete"})
	_, _, data := i.do(t, http.MethodGet, "/v1/requests/r/events?last_event_id="+list[0].id, "", nil)
	check.Equal(t, kinds(read(t, strings.NewReader(string(data)))), []string{"RESULT_PATCH", "complete"})
	// A stale id is a reset and a snapshot.
	resp = open(t, i, "AAAAAAAA.AA")
	list = read(t, resp)
	check.Equal(t, kinds(list), []string{"reset", "snapshot", "complete"})
	check.Equal(t, list[0].id, "", "the id of the reset")
}

// dial opens a WebSocket.
func dial(t *testing.T, i *instance, query string, header http.Header) (conn *websocket.Conn, status int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	conn, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(i.URL, "http")+"/v1/requests/r/ws"+query, &websocket.DialOptions{HTTPHeader: header})
	if resp != nil && resp.Body != nil {
		defer resp.Body.Close()
	}
	if resp != nil {
		status = resp.StatusCode
	}
	return conn, status, err
}

// TestPlainWebSocket gets the frame of the document and nothing else, for changes and for results that are known
// already.
func TestPlainWebSocket(t *testing.T) {
	t.Parallel()
	i, let := begin(t, options{heartbeat: time.Millisecond})
	for _, when := range []string{"while it changes", "when it is known"} {
		conn, _, err := dial(t, i, "", nil)
		check.OK(t, err)
		if when == "while it changes" {
			let()
		}
		kind, data, err := conn.Read(t.Context())
		check.OK(t, err)
		i.described.Frame(t, data)
		diff := cmp.Diff(found, string(data))
		check.That(t, diff == "" && kind == websocket.MessageText, "%s, %v (-want +got):\n%s", when, kind, diff)
		_, data, err = conn.Read(t.Context())
		check.That(t, websocket.CloseStatus(err) == websocket.StatusNormalClosure, "%s it ends with %q, %v, want a normal end", when, data, err)
	}
}

// TestResumableWebSocket has ids in its frames, a snapshot first, the rest after any of them, and the reset.
func TestResumableWebSocket(t *testing.T) {
	t.Parallel()
	i, let := begin(t, options{})
	last := ""
	frames := func(query string, most int) (got []string) {
		t.Helper()
		conn, _, err := dial(t, i, query, nil)
		check.OK(t, err)
		defer conn.CloseNow()
		for len(got) < most {
			_, data, err := conn.Read(t.Context())
			if err != nil {
				check.Equal(t, websocket.CloseStatus(err), websocket.StatusNormalClosure, err)
				break
			}
			var f struct {
				Type      string `json:"type"`
				EventID   string `json:"eventId"`
				RequestID string `json:"requestId"`
			}
			err = json.Unmarshal(data, &f)
			check.That(t, err == nil && f.RequestID == "r" && (f.EventID == "") == (f.Type == "reset"), "frame is %s, %v", data, err)
			i.described.Frame(t, data)
			got, last = append(got, f.Type), f.EventID
		}
		return got
	}
	check.Equal(t, frames("?last_event_id=", 1), []string{"snapshot"})
	let()
	check.Equal(t, frames("?last_event_id="+last, 1), []string{"RESULT_PATCH"})
	check.Equal(t, frames("?last_event_id="+last, 10), nil) // everything has been sent; the end is not worth a connection
	check.Equal(t, frames("?last_event_id=", 10), []string{"snapshot", "complete"})
	check.Equal(t, frames("?last_event_id="+last, 10), nil)
	check.Equal(t, frames("?last_event_id=AAAAAAAA.AA", 10), []string{"reset", "snapshot", "complete"})
}

// TestOrigins: pages of others may not open a WebSocket, unless they are listed.
func TestOrigins(t *testing.T) {
	t.Parallel()
	i, _ := begin(t, options{origins: []string{"https://app.example.com", "http://[::1]:3000"}})
	for origin, allowed := range map[string]bool{
		i.URL: true, "https://app.example.com": true, "http://[::1]:3000": true, "https://evil.test": false,
		"http://app.example.com": false, "https://app.example.com:8443": false, "https://app.example.com.evil.test": false, "null": false,
	} {
		conn, status, err := dial(t, i, "", http.Header{"Origin": {origin}})
		switch {
		case allowed && err != nil:
			t.Errorf("%s: %v", origin, err)
		case !allowed && (err == nil || status != http.StatusForbidden):
			t.Errorf("%s was let in: %v", origin, err)
		}
		if conn != nil {
			conn.CloseNow()
		}
	}
}

func TestEveryRequestOverNATSIsAnswered(t *testing.T) {
	t.Parallel()
	_, _, nc := startMicro(t, natstest.Server(t), options{works: true})
	servicetest.Answers(t, nc, service.Endpoints(api.Operations(nil)), [][2]string{
		{"enrich", `{"requestId":"hello","cityText":"Tel Aviv","results":[{"placeId":"p1","name":"Café Alma Levana","address":"Rothschild Blvd 71"}]}`},
		{"get", `{"requestId":"hello"}`},
		{"place", `{"placeId":"p1"}`},
	})
}

func TestEveryExampleIsAnsweredAsDescribed(t *testing.T) {
	t.Parallel()
	i := start(t, natstest.Server(t), options{works: true})
	for n := range 20 { // as many places as a request may have
		list := places(100)
		for k := range list {
			list[k].PlaceID += strconv.Itoa(n)
		}
		i.ask(t, contracts.EnrichRequest{RequestID: "full", Results: list})
	}
	i.described.Examples(t, i.Client(), i.URL, nil, map[string]servicetest.Case{
		"POST /v1/enrich 409": {Body: `{"requestId":"full","results":[{"placeId":"one more","name":"Alma"}]}`},
	})
}
