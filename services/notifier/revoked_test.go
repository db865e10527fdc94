package notifier

import (
	"bufio"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
)

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
		check.Same(f, "the next event", got, want)
	case <-time.After(patience):
		f.Errorf("neither an event nor the end, want %q", want)
	}
}

func followEvents(t *testing.T, client *http.Client, base, secret string) *follower {
	t.Helper()
	f := &follower{T: t, events: make(chan string, 10)}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/v1/users/ada/inbox/events", http.NoBody)
	check.OK(t, err)
	r.Header.Set("Authorization", "Bearer "+secret)
	resp, err := client.Do(r) //nolint:bodyclose // when the stream ends
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	go func() {
		defer close(f.events)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			var item inapp.Item
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &item) == nil {
				f.events <- item.EventID
			}
		}
	}()
	return f
}

func followSocket(t *testing.T, client *http.Client, base, secret string) *follower {
	t.Helper()
	f := &follower{T: t, events: make(chan string, 10)}
	conn, _, err := websocket.Dial( //nolint:bodyclose // it is the connection
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

// A stream or WebSocket ends when its key is revoked or expires, with the next event, which it does not have, or with the next
// heartbeat. Those of other keys go on.
func TestAKeyThatIsNotInForceAnyMoreEndsItsStreams(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const life = 10 * time.Minute
		path, secrets := filepath.Join(t.TempDir(), "keys.json"), map[string]string{}
		for name, expires := range map[string]time.Time{"lasting": {}, "revoked": {}, "idle": {}, "short": time.Now().Add(life)} {
			key := access.Key{Expires: expires, Name: name, Scopes: []access.Scope{access.Read}, User: "ada"}
			var err error
			if secrets[name], err = access.Add(path, key); err != nil {
				t.Fatal(err)
			}
		}
		listener := servicetest.NewPipes()
		p := newPlace(t, srv)
		n := p.start(&pigeon{}, func(c *Config) { c.Keys, c.Listen, c.Listener = path, "", listener })
		client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
		t.Cleanup(client.CloseIdleConnections)
		tell := func(id string) {
			p.publish(event(id, "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType, e.UserID = "CUSTOMER", "ada" }))
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
		tell("e0")
		see("e0", "idle", "lasting", "revoked", "short")
		check.OK(t, access.Revoke(path, "revoked"))
		<-time.After(3 * time.Second) // a service has read the file
		tell("e1")
		see("e1", "idle", "lasting", "short")
		see("", "revoked")
		check.OK(t, access.Revoke(path, "idle"))
		see("", "idle") // with a heartbeat: no event comes
		<-time.After(life)
		tell("e2")
		see("e2", "lasting")
		see("", "short")
		check.Is(t, n.Stop(), nil)
		see("", "lasting")
	})
}
