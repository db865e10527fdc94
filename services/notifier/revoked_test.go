package notifier

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/emersion/go-smtp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/template"
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
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/v1/users/ada/inbox/events", http.NoBody))(t)
	r.Header.Set("Authorization", "Bearer "+secret)
	resp, err := client.Do(r) //nolint:bodyclose // when the stream ends
	check.Require(t, err == nil && resp.StatusCode == http.StatusOK, "%v %v", resp, err)
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
			secrets[name], err = access.Add(path, key)
			check.OK(t, err)
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

// A webhook that answers 410 is called once, and the notifier's permissions of deploy/nats are enough to remove its
// address.
func TestAWebhookThatIsGoneIsCalledOnce(t *testing.T) {
	t.Parallel()
	calls := make(chan string, 10)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls <- r.Header.Get("Webhook-Id")
		w.WriteHeader(http.StatusGone)
	}))
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	hook, err := webhook.New(webhook.Config{
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: roots,
		Secrets: []string{"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))},
	})
	check.OK(t, err)
	t.Cleanup(hook.Close)
	users := natstest.NewUsers(t)
	server := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	p := administered(t, server, users)
	cfg := Config{
		BaseConfig: service.BaseConfig{
			Listen: "-", Logger: slog.New(slog.DiscardHandler),
		},
		Channels: []Channel{{Channel: hook}},
		Rules:    writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [webhook]}}}"),
	}
	directory := p.directory(contracts.Recipient{
		RecipientType: contracts.RecipientCustomer, UserID: "ada", Addresses: map[string]string{"webhook": srv.URL, "email": "ada@example.org"},
	})
	nc, _ := natstest.Connect(t, server, users.As("notifier"))
	n := check.Must(Start(t.Context(), nc, cfg))(t)
	told := func(id string) { p.publish(event(id, "X", func(e *contracts.Event) { e.UserID = "ada" })) }
	told("evt-001")
	p.until("the address is removed", func() bool {
		r, _, err := directory.Get(t.Context(), contracts.RecipientCustomer, "ada")
		return err == nil && len(r.Addresses) == 1 && r.Addresses["email"] != ""
	})
	told("evt-002")
	all := p.settled(2)
	check.Is(t, n.Stop(), nil)
	first, second := all["evt-001.webhook.CUSTOMER.ada"], all["evt-002.webhook.CUSTOMER.ada"]
	if len(calls) != 1 || first.State != "bounced" || first.Reason != "gone" || second.State != "suppressed" || second.Reason != "no_address" {
		t.Errorf("%d calls, %+v, %+v", len(calls), first, second)
	}
}

// An event that cannot be planned says so, and why, until it is told again, or its letter is replayed. Another event under
// its id changes nothing about it.
func TestAnEventThatCannotBePlannedSaysWhy(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	p.directory(users(contracts.RecipientRestaurantUser, 2)...)
	file := writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [inapp]}}}")
	n := p.start(&pigeon{}, func(c *Config) { c.Rules, c.RulesEvery = file, time.Hour })
	nobody := event("evt-001", "X")
	refused := func(letters int) {
		t.Helper()
		p.until("it is dead-lettered", func() bool { return len(p.letters()) == letters })
		e, err := n.Event(t.Context(), "evt-001")
		check.Require(t, err == nil && e.State == plan.StateRefused && strings.Contains(e.Reason, "no user_id"), "%+v: %v", e, err)
	}
	told := func(want Accepted) {
		t.Helper()
		want.Duplicate, want.EventID = true, "evt-001"
		got, err := n.Publish(t.Context(), nobody)
		check.That(t, err == nil && got == want, "%+v: %v, want %+v", got, err, want)
	}
	p.publish(nobody) // without an id that the stream would know
	refused(1)
	told(Accepted{State: plan.StateSeen})
	refused(2)
	p.publish(event("evt-001", "X", func(e *contracts.Event) { e.Payload = json.RawMessage(`{"guests":5}`) }))
	refused(3)
	check.OK(t, os.WriteFile(file, []byte("version: 1\nevents: {X: {RESTAURANT_USER: {channels: [inapp]}}}"), 0o600))
	n.rules.look(t.Context())
	told(Accepted{State: plan.StateRefused}) // the stream knows it now, and does not deliver it
	p.publish(nobody)                        // as a replay does
	e := p.expanded(n, "evt-001")
	check.That(t, e.Reason == "" && e.Rows == 2, "%+v", e)
	told(Accepted{State: plan.StateExpanded})
	p.settled(2)
}

// A mail that the server takes at the second attempt only is the same as at the first, to the letter, and has the date of that, not
// the one of its event.
func TestAMailThatIsTriedAgainStaysTheSame(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	p.directory(contracts.Recipient{RecipientType: "ADMIN", UserID: "ada", Addresses: map[string]string{"email": "ada@example.org"}})
	var letters [][]byte
	far := newFar(t, 0)
	far.read = func(_ string, raw []byte) error {
		if letters = append(letters, raw); len(letters) == 1 {
			return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "come back later"}
		}
		return nil
	}
	texts := check.Must(template.Load(writeTexts(t, "X", "A table", "{{.Payload}}", ""), template.Config{}))(t)
	mails, err := email.New(email.Config{Address: far.mail, From: "notify@example.com", Security: email.Plain, Templates: texts})
	check.OK(t, err)
	t.Cleanup(mails.Close)
	n := p.start(&pigeon{}, func(c *Config) {
		c.Rules = writeRules(t, "{version: 1, events: {X: {ADMIN: {scope: all, channels: [email]}}}}")
		c.Channels = []Channel{{Channel: mails, Retries: []time.Duration{1500 * time.Millisecond}}} // in another second
	})
	p.publish(event("late", "X", func(e *contracts.Event) { e.OccurredAt = time.Now().Add(-time.Hour) }))
	d := p.settled(1)["late.email.ADMIN.ada"]
	check.Is(t, n.Stop(), nil)
	check.Require(t, len(letters) == 2 && d.State == deliveries.Sent && len(d.Attempts) == 2, "%d letters, %+v", len(letters), d)
	dates := [2]string{}
	for i, letter := range letters {
		msg := check.Must(mail.ReadMessage(bytes.NewReader(letter)))(t)
		dates[i] = msg.Header.Get("Date") + msg.Header.Get("Message-Id")
		if date, err := msg.Header.Date(); err != nil || !date.Equal(d.Attempts[0].At.Truncate(time.Second)) {
			t.Errorf("attempt %d has the date %s, %v: want that of the first, %s", i+1, date, err, d.Attempts[0].At)
		}
	}
	check.Same(t, "date and id of both", dates[1], dates[0])
}
