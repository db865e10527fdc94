package notifier

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/httpapi"
)

func TestInboxOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	w := newWeb(t, p.start(&pigeon{}, listening))
	for i := range 5 {
		p.publish(event(fmt.Sprintf("e%d", i), "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType, e.UserID = "CUSTOMER", "a/b" }))
		p.settled(i + 1)
	}
	type page struct {
		inapp.Page

		Next string
	}
	var got []string
	for path := "/v1/users/a%2Fb/inbox?limit=2"; path != ""; {
		part := get[page](w, path)
		for _, item := range part.Items {
			got = append(got, item.EventID)
		}
		if path = ""; part.Next != "" {
			path = "/v1/users/a%2Fb/inbox?limit=2&cursor=" + part.Next
		}
	}
	check.Equal(t, []string{"e4", "e3", "e2", "e1", "e0"}, got)
	if status, body := w.call(http.MethodPatch, "/v1/users/a%2Fb/inbox/e1", `{"state":"read"}`); status != 200 || !strings.Contains(body, `"state":"read"`) {
		t.Errorf("%d %s", status, body)
	}
	status, body := w.call(http.MethodPost, "/v1/users/a%2Fb/inbox?type=CUSTOMER", `{"state":"archived","events":["e0","e1","gone"]}`)
	check.That(t, status == 200 && body == `{"counts":{"archived":2,"read":0,"unread":3},"marked":2}`+"\n", "%d %s", status, body)
	status, body = w.call(http.MethodPost, "/v1/users/a%2Fb/inbox", `{"state":"read"}`)
	check.That(t, status == 200 && strings.Contains(body, `"read":3,"unread":0},"marked":3`), "%d %s", status, body)
	archived := get[page](w, "/v1/users/a%2Fb/inbox?state=archived")
	check.That(t, len(archived.Items) == 2 && archived.Items[0].EventID == "e1", "%+v", archived)
	other := get[page](w, "/v1/users/a/inbox")
	check.That(t, len(other.Items) == 0 && other.Counts == (inapp.Counts{}), "somebody else sees %+v", other)
}

// The inbox is live: a client gets the items that are there, new ones and changes; one that comes back gets the
// changes that it has missed.
func TestInboxIsLive(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	n := p.start(&pigeon{}, listening)
	w := newWeb(t, n)
	tell := func(id, user string) {
		p.publish(event(id, "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType, e.UserID = "CUSTOMER", user }))
	}
	tell("e0", "ada")
	p.settled(1)
	first, end := w.listen("/v1/users/ada/inbox/events")
	id, item, _ := first()
	check.Require(t, item.EventID == "e0", "%+v", item)
	tell("e1", "eve")
	tell("e2", "ada")
	_, item, _ = first()
	check.Require(t, item.EventID == "e2", "%+v", item)
	check.OK(t, check.Err(n.Inbox.Mark(t.Context(), "CUSTOMER", "ada", "e0", inapp.Read)))
	_, item, _ = first()
	check.Require(t, item.EventID == "e0" && item.State == inapp.Read, "%+v", item)
	end()
	again, end := w.listen("/v1/users/ada/inbox/events?last_event_id=" + id)
	defer end()
	for _, want := range []string{"e2", "e0"} {
		_, item, _ = again()
		check.That(t, item.EventID == want, "%+v, want %s", item, want)
	}
	conn, _, err := websocket.Dial( //nolint:bodyclose // it is the connection
		t.Context(), w.base+"/v1/users/ada/inbox/ws?last_event_id="+id, &websocket.DialOptions{HTTPClient: w.client})
	check.OK(t, err)
	defer conn.CloseNow()
	tell("e3", "ada")
	described := servicetest.Described(t, httpapi.OpenAPI)
	for _, want := range []string{"e2", "e0", "e3"} {
		_, data, err := conn.Read(t.Context())
		var frame struct {
			Type string     `json:"type"`
			ID   string     `json:"id"`
			Item inapp.Item `json:"item"`
		}
		check.That(t, err == nil && json.Unmarshal(data, &frame) == nil && frame.Type == "item" && frame.ID != "" && frame.Item.EventID == want,
			"%s: %v, want %s", data, err, want)
		described.Frame(t, data)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop() }()
	_, _, err = conn.Read(t.Context())
	check.That(t, websocket.CloseStatus(err) == websocket.StatusGoingAway, "the end is %v", err)
	check.Is(t, <-stopped, nil)
}

// listen reads server-sent events. more is false at the end of the stream.
func (w *web) listen(path string, header ...string) (next func() (id string, item inapp.Item, more bool), end func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	resp := w.request(ctx, http.MethodGet, path, "", header...) //nolint:bodyclose // by end
	check.Require(w, resp.StatusCode == http.StatusOK, "%s", resp.Status)
	lines := bufio.NewScanner(resp.Body)
	return func() (id string, item inapp.Item, more bool) {
			for lines.Scan() {
				if after, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
					id = after
				}
				if after, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
					check.Is(w, json.Unmarshal(after, &item), nil)
					return id, item, true
				}
			}
			return id, item, false
		}, func() {
			cancel()
			_ = resp.Body.Close()
		}
}
