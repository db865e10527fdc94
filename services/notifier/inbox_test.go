package notifier

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func TestInboxOverHTTP(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	w := newHTTPClient(t, p.start(&provider{}, listening))
	for i := range 5 {
		p.publish(event(fmt.Sprintf("e%d", i), "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType, e.UserID = "CUSTOMER", "a/b" }))
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
	check.Equal(t, got, []string{"e4", "e3", "e2", "e1", "e0"})
	check.Contains(t, w.wants(200, http.MethodPatch, "/v1/users/a%2Fb/inbox/e1", `{"state":"read"}`), `"state":"read"`)
	marked := w.wants(200, http.MethodPost, "/v1/users/a%2Fb/inbox?type=CUSTOMER", `{"state":"archived","events":["e0","e1","gone"]}`)
	check.Equal(t, marked, `{"counts":{"archived":2,"read":0,"unread":3},"marked":2}`+"\n")
	check.Contains(t, w.wants(200, http.MethodPost, "/v1/users/a%2Fb/inbox", `{"state":"read"}`), `"read":3,"unread":0},"marked":3`)
	archived := get[page](w, "/v1/users/a%2Fb/inbox?state=archived")
	check.That(t, len(archived.Items) == 2 && archived.Items[0].EventID == "e1", "%+v", archived)
	other := get[page](w, "/v1/users/a/inbox")
	check.That(t, len(other.Items) == 0 && other.Counts == (inapp.Counts{}), "somebody else sees %+v", other)
}

// The inbox is live: a client gets the items that are there, new ones and changes; one that comes back gets the
// changes that it has missed.
func TestInboxIsLive(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	n := p.start(&provider{}, listening)
	w := newHTTPClient(t, n)
	publish := func(id, user string) {
		p.publish(event(id, "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType, e.UserID = "CUSTOMER", user }))
	}
	publish("e0", "ada")
	p.settled(1)
	first, end := w.listen("/v1/users/ada/inbox/events")
	id, item, _ := first()
	check.Require(t, item.EventID == "e0", "%+v", item)
	publish("e1", "eve")
	publish("e2", "ada")
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
	conn, _, err := websocket.Dial(
		t.Context(), w.base+"/v1/users/ada/inbox/ws?last_event_id="+id, &websocket.DialOptions{HTTPClient: w.client})
	check.OK(t, err)
	defer conn.CloseNow()
	publish("e3", "ada")
	described := servicetest.Described(t, api.OpenAPI)
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
	check.ErrorIs(t, <-stopped, nil)
}

// listen reads server-sent events. more is false at the end of the stream.
func (w *httpClient) listen(path string, header ...string) (next func() (id string, item inapp.Item, more bool), end func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	resp := w.request(ctx, http.MethodGet, path, "", header...)
	check.Require(w, resp.StatusCode == http.StatusOK, "%s: %s", resp.Status, resp.Header.Get("WWW-Authenticate"))
	lines := bufio.NewScanner(resp.Body)
	return func() (id string, item inapp.Item, more bool) {
			for lines.Scan() {
				if after, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
					id = after
				}
				if after, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
					check.ErrorIs(w, json.Unmarshal(after, &item), nil)
					return id, item, true
				}
			}
			return id, item, false
		}, func() {
			cancel()
			_ = resp.Body.Close()
		}
}

// follower is a client that follows the inbox of ada. Its channel has the ids of the events, and is closed when the service ends
// the stream.
type follower struct {
	*testing.T

	events chan string
}

// sees checks that the next event has this id, or with "" that the stream ends before one, within patience of fake time.
func (f *follower) sees(want string) {
	f.Helper()
	select {
	case got := <-f.events:
		check.Equal(f, got, want, "the next event")
	case <-time.After(patience):
		f.Errorf("neither an event nor the end, want %q", want)
	}
}

func followEvents(t *testing.T, client *http.Client, base, secret string) *follower {
	t.Helper()
	f := &follower{T: t, events: make(chan string, 10)}
	w := &httpClient{T: t, base: base, client: client}
	next, end := w.listen("/v1/users/ada/inbox/events", "Authorization", "Bearer "+secret)
	go func() {
		defer close(f.events)
		defer end()
		for _, item, more := next(); more; _, item, more = next() {
			f.events <- item.EventID
		}
	}()
	return f
}

func followSocket(t *testing.T, client *http.Client, base, secret string) *follower {
	t.Helper()
	f := &follower{T: t, events: make(chan string, 10)}
	conn, _, err := websocket.Dial(
		t.Context(), base+"/v1/users/ada/inbox/ws", &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{access.Subprotocol, "bearer." + secret}})
	check.OK(t, err)
	go func() {
		defer close(f.events)
		defer conn.CloseNow()
		for {
			var frame struct {
				Item inapp.Item `json:"item"`
			}
			_, data, err := conn.Read(t.Context())
			if err != nil || json.Unmarshal(data, &frame) != nil {
				return
			}
			f.events <- frame.Item.EventID
		}
	}()
	return f
}

// A stream or WebSocket ends when its key, or the signer of its token, is revoked or expires, with the next event, which it does not have, or with the next
// heartbeat. Those of other keys go on.
func TestAKeyThatIsNotInForceAnyMoreEndsItsStreams(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const life = 10 * time.Minute
		path, secrets := filepath.Join(t.TempDir(), "keys.json"), map[string]string{}
		for name, expires := range map[string]time.Time{"lasting": {}, "revoked": {}, "idle": {}, "short": time.Now().Add(life)} {
			key := access.Key{Expires: expires, Name: name, Scopes: []access.Scope{access.Read}, User: "ada"}
			secrets[name] = check.Must(access.Add(path, key))(t)
		}
		for name, left := range map[string]time.Duration{"lasting token": time.Hour, "revoked signer": time.Hour, "short token": life} {
			algorithm := access.SignerAlgorithms()[len(secrets)%2]
			signer := check.Must(access.AddSigner(path, strings.ReplaceAll(name, " ", "-"), algorithm))(t)
			secrets[name] = servicetest.Token(t, signer, "notifier", map[string]any{"exp": time.Now().Add(left).Unix(), "scope": "read"})
		}
		listener := servicetest.NewPipes()
		p := newFixture(t, srv)
		n := p.start(&provider{}, func(c *Config) { c.Keys, c.Listen, c.Listener = path, "", listener })
		client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
		t.Cleanup(client.CloseIdleConnections)
		publish := func(id string) {
			p.publish(event(id, "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType, e.UserID = "CUSTOMER", "ada" }))
		}
		streams := map[string][]*follower{}
		for name, secret := range secrets {
			streams[name] = []*follower{followEvents(t, client, n.URL(), secret), followSocket(t, client, n.URL(), secret)}
		}
		see := func(want string, names ...string) {
			t.Helper()
			for _, name := range names {
				for _, f := range streams[name] {
					f.sees(want)
				}
			}
		}
		publish("e0")
		see("e0", "idle", "lasting", "lasting token", "revoked", "revoked signer", "short", "short token")
		check.OK(t, errors.Join(access.Revoke(path, "revoked"), access.Revoke(path, "revoked-signer")))
		<-time.After(3 * time.Second) // a service has read the file
		publish("e1")
		see("e1", "idle", "lasting", "lasting token", "short", "short token")
		see("", "revoked", "revoked signer")
		check.OK(t, access.Revoke(path, "idle"))
		see("", "idle") // with a heartbeat: no event comes
		<-time.After(life)
		publish("e2")
		see("e2", "lasting", "lasting token")
		see("", "short", "short token")
		check.ErrorIs(t, n.Stop(), nil)
		see("", "lasting", "lasting token")
	})
}

// An event that cannot be planned says so, and why, until it is told again, or its dead letter is replayed. Another event under
// its id changes nothing about it.
func TestAnEventThatCannotBePlannedSaysWhy(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 2)...)
	file := writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [inapp]}}}")
	n := p.start(&provider{}, func(c *Config) { c.Rules, c.RulesEvery = file, time.Hour })
	nobody := event("evt-001", "X")
	refused := func(deadLetters int) {
		t.Helper()
		p.until("it is dead-lettered", func() bool { return len(p.deadLetters()) == deadLetters })
		e, err := n.Event(t.Context(), "evt-001")
		check.Require(t, err == nil && e.State == plan.StateRefused && strings.Contains(e.Reason, "no user_id") &&
			!strings.Contains(e.Reason, "cancelled"), "%+v: %v", e, err)
	}
	publish := func(want Accepted) {
		t.Helper()
		want.Duplicate, want.EventID = true, "evt-001"
		got, err := n.Publish(t.Context(), nobody)
		check.That(t, err == nil && got == want, "%+v: %v, want %+v", got, err, want)
	}
	p.publish(nobody) // without an id that the stream would know
	refused(1)
	publish(Accepted{State: plan.StateSeen})
	refused(2)
	p.publish(event("evt-001", "X", func(e *recipient.Event) { e.Payload = json.RawMessage(`{"guests":5}`) }))
	refused(3)
	check.OK(t, os.WriteFile(file, []byte("version: 1\nevents: {X: {RESTAURANT_USER: {channels: [inapp]}}}"), 0o600))
	n.rules.look(t.Context())
	publish(Accepted{State: plan.StateRefused}) // the stream knows it now, and does not deliver it
	p.publish(nobody)                           // as a replay does
	e := p.expanded(n, "evt-001")
	check.That(t, e.Reason == "" && e.Notifications == 2, "%+v", e)
	publish(Accepted{State: plan.StateExpanded})
	p.settled(2)
}
