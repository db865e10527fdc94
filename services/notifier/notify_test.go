package notifier

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

const welcome = `{"event_id":"call-1","recipients":[{"recipient_type":"CUSTOMER","user_id":"ada"}],"channels":["inapp"],` +
	`"later":[{"after":"24h","unread":true,"channels":["pigeon"]}],"category":"hello","template":"welcome","payload":{"n":1}}`

// A notification goes where it says, without a rule. The same call again changes nothing, in whatever order its fields are; another one
// under its id is refused.
func TestNotify(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	p.directory(contracts.Recipient{UserID: "ada", RecipientType: "CUSTOMER"}, contracts.Recipient{UserID: "bob", RecipientType: "ADMIN"})
	birds := &pigeon{}
	n := p.start(birds, listening)
	w := newWeb(t, n)
	turned := `{"later":[{"channels":["pigeon"],"after":"24h","unread":true}],` + strings.TrimPrefix(strings.Replace(welcome,
		`"later":[{"after":"24h","unread":true,"channels":["pigeon"]}],`, "", 1), "{")
	for _, call := range []struct {
		body   string
		status int
		header []string
	}{
		{welcome, http.StatusAccepted, nil},
		{welcome, http.StatusOK, nil},
		{turned, http.StatusOK, nil},
		{strings.Replace(welcome, `"event_id":"call-1",`, "", 1), http.StatusOK, []string{"Idempotency-Key", "call-1"}},
		{strings.Replace(welcome, `"inapp"`, `"pigeon"`, 1), http.StatusBadRequest, nil}, // it is there twice
		{strings.Replace(welcome, `24h`, `23h`, 1), http.StatusConflict, nil},
		{strings.Replace(welcome, `"n":1`, `"n":2`, 1), http.StatusConflict, nil},
		{
			`{"event_id":"call-2","event_type":"ALARM","priority":"critical","recipients":[{"recipient_type":"ADMIN","user_id":"bob"}],"channels":["pigeon"]}`,
			http.StatusAccepted, nil,
		},
	} {
		status, answer := w.call(http.MethodPost, "/v1/notify", call.body, call.header...)
		check.That(t, status == call.status, "%s: %d %s, want %d", call.body, status, answer, call.status)
	}
	all := p.settled(2)
	p.until("the third waits", func() bool {
		all = p.deliveries()
		return len(all) == 3 && all["call-1.pigeon.CUSTOMER.ada"].State == "deferred"
	})
	item, err := n.Inbox.Get(t.Context(), "CUSTOMER", "ada", "call-1")
	if err != nil || item.Template != "welcome" || item.Category != "hello" || string(item.Payload) != `{"n":1}` || item.EventType != "NOTIFICATION" {
		t.Errorf("%+v: %v", item, err)
	}
	d := all["call-2.pigeon.ADMIN.bob"]
	check.That(t, d != nil && d.State == deliveries.Sent, "%+v", d)
	check.OK(t, check.Err(p.js.Publish(t.Context(), "events./routed.X", []byte(strings.Replace(routedEvent, "inapp", "fax", 1)))))
	p.until("a route with mistakes is refused", func() bool { return len(p.letters()) == 1 })
	reply, err := p.nc.RequestMsgWithContext(t.Context(), &nats.Msg{
		Subject: "notifier.v1.notify", Data: []byte(strings.Replace(welcome, `"event_id":"call-1",`, "", 1)), Header: nats.Header{"Idempotency-Key": {"call-1"}},
	})
	if err != nil || !strings.Contains(string(reply.Data), `"duplicate":true`) {
		t.Errorf("%s: %v", reply.Data, err)
	}
}

// All that is wrong with a notification is in one answer.
func TestMistakesOfANotification(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	w := newWeb(t, p.start(&pigeon{}, listening, func(c *Config) {
		c.EmailServer, c.EmailFrom, c.Templates = "127.0.0.1:1", "notify@example.com", writeTexts(t, "known", "Hello", "Hello", "")
	}))
	for body, wants := range map[string][]string{
		`[]`: {"must be JSON such as"},
		`{}`: {"/event_id", "/recipients", "/channels"},
		`{"event_id":"e","recipients":[{"user_id":"","recipient_type":"no type"}],"channels":["fax","inapp","inapp"],"later":[{}],"colour":"red",` +
			`"not_before":"soon","priority":"most"}`: {
			"/recipients/0/user_id", "/recipients/0/recipient_type", "fax", "twice", "/later/0/after", "/later/0/channels", "/colour", "/not_before", "/priority",
		},
		`{"event_id":"e","recipients":[{"user_id":"u","recipient_type":"T"}],"channels":["email"],"template":"unknown"}`:                               {"unknown/default.txt, in the templates"},
		strings.Replace(welcome, `"event_id":"call-1"`, `"event_id":"call-3","not_before":"`+time.Now().Add(21*day).UTC().Format(time.RFC3339)+`"`, 1): {"NOT_BEFORE_TOO_FAR"},
		`{"event_id":"e","channels":["inapp"],"recipients":[` + strings.Repeat(`{"user_id":"u","recipient_type":"T"},`, 10_000) +
			`{"user_id":"u","recipient_type":"T"}]}`: {"10001 items, at most 10000"},
	} {
		status, answer := w.call(http.MethodPost, "/v1/notify", body)
		want := http.StatusBadRequest
		if strings.Contains(body, `"call-3"`) { // it is well-formed
			want = http.StatusUnprocessableEntity
		}
		check.Same(t, "status of "+body[:min(len(body), 99)], status, want)
		check.Says(t, answer, wants...)
	}
	status, answer := w.call(http.MethodPost, "/v1/notify", welcome, "Idempotency-Key", "other")
	check.That(t, status == http.StatusBadRequest && strings.Contains(answer, "Idempotency-Key"), "%d %s", status, answer)
}

// A key that may publish events chooses no channels, and one that chooses channels no addresses.
func TestScopesOfNotifications(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	keys, secrets := filepath.Join(t.TempDir(), "keys.json"), map[access.Scope]string{}
	for _, scope := range []access.Scope{access.Publish, access.Notify, access.Address} {
		var err error
		scopes := []access.Scope{scope}
		if scope == access.Address {
			scopes = append(scopes, access.Notify)
		}
		secrets[scope], err = access.Add(keys, access.Key{Name: string(scope), Scopes: scopes})
		check.OK(t, err)
	}
	w := newWeb(t, p.start(&pigeon{}, listening, func(c *Config) { c.Keys = keys }))
	awake := strings.Replace(welcome, `"ada"`, `"ada","quiet_hours":{"from":"00:00","to":"00:00"}`, 1)
	for _, test := range []struct {
		key        access.Scope
		path, body string
		status     int
	}{
		{access.Publish, "/v1/notify", welcome, http.StatusForbidden},
		{access.Publish, "/v1/events", routedEvent, http.StatusBadRequest},
		{access.Notify, "/v1/events", reservation, http.StatusForbidden},
		{access.Notify, "/v1/notify", strings.Replace(welcome, `"ada"`, `"ada","addresses":{"pigeon":"x"}`, 1), http.StatusForbidden},
		{access.Notify, "/v1/notify", awake, http.StatusForbidden},
		{access.Address, "/v1/notify", awake, http.StatusAccepted},
		{access.Notify, "/v1/notify", strings.Replace(welcome, "call-1", "call-2", 1), http.StatusAccepted},
	} {
		status, answer := w.call(http.MethodPost, test.path, test.body, "Authorization", "Bearer "+secrets[test.key])
		check.That(t, status == test.status, "%s: %s %s: %d %s", test.key, test.path, test.body, status, answer)
	}
}

const routedEvent = `{"event_id":"evt-666","event_type":"X","aggregate_type":"Y","recipients":[{"recipient_type":"CUSTOMER","user_id":"ada"}],` +
	`"route":{"channels":["inapp","pigeon"],"priority":"critical","template":"your-account-is-blocked"}}`

// A source system, with what deploy/nats permits it, chooses no channels: events that do so are not stored under the subjects that are
// for them, and refused under all others. The service itself is permitted to.
func TestASourceChoosesNoChannels(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	p := administered(t, srv, users, "pigeon")
	p.directory(contracts.Recipient{UserID: "ada", RecipientType: "CUSTOMER"})
	nc, _ := natstest.Connect(t, srv, users.As("notifier"))
	cfg := Config{Channels: []Channel{{Channel: &pigeon{}}}, Rules: writeRules(t, testRules)}
	cfg.Listen, cfg.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	n := check.Must(Start(t.Context(), nc, cfg))(t)
	defer func() { check.Is(t, n.Stop(), nil) }()
	denied := make(chan error, 10)
	source, _ := natstest.Connect(t, srv, users.As("publisher"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	js := check.Must(jetstream.New(source))(t)
	check.OK(t, source.Publish("events./routed.X", []byte(routedEvent)))
	check.Is(t, <-denied, nats.ErrPermissionViolation)
	check.OK(t, check.Err(js.Publish(t.Context(), "events.Y.X", []byte(routedEvent))))
	p.until("it is refused", func() bool { return len(p.letters()) == 1 })
	check.Says(t, p.letters()[0].Error, "/route is not for a source of events")
	reply, err := source.RequestWithContext(t.Context(), "notifier.v1.publish", []byte(routedEvent))
	if err != nil || !strings.Contains(string(reply.Data), "/route") {
		t.Errorf("%s: %v", reply.Data, err)
	}
	check.Is(t, check.Err(source.RequestWithContext(t.Context(), "notifier.v1.notify", []byte(welcome))), nats.ErrNoResponders)
	status, answer := newWeb(t, n).call(http.MethodPost, "/v1/notify", strings.Replace(welcome, "24h", "1s", 1))
	check.That(t, status == http.StatusAccepted, "%d %s", status, answer)
	all := p.settled(2)
	check.Same(t, "rows", len(all), 2)
	for key := range all {
		check.That(t, strings.HasPrefix(key, "call-1."), "%s is a row", key)
	}
}
