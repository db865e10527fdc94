package notifier

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

const welcome = `{"event_id":"call-1","recipients":[{"recipient_type":"CUSTOMER","user_id":"ada"}],"channels":["inapp"],` +
	`"later":[{"after":"24h","unread":true,"channels":["push"]}],"category":"hello","template":"welcome","payload":{"n":1}}`

// A notification goes where it says, without a rule. The same call again changes nothing, in whatever order its fields are; another one
// under its id is refused.
func TestNotify(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(contracts.Recipient{UserID: "ada", RecipientType: "CUSTOMER"}, contracts.Recipient{UserID: "bob", RecipientType: "ADMIN"})
	push := &provider{}
	n := p.start(push, listening)
	w := newHTTPClient(t, n)
	turned := `{"later":[{"channels":["push"],"after":"24h","unread":true}],` + strings.TrimPrefix(strings.Replace(welcome,
		`"later":[{"after":"24h","unread":true,"channels":["push"]}],`, "", 1), "{")
	for _, call := range []struct {
		body   string
		status int
		header []string
	}{
		{welcome, http.StatusAccepted, nil},
		{welcome, http.StatusOK, nil},
		{turned, http.StatusOK, nil},
		{strings.Replace(welcome, `"event_id":"call-1",`, "", 1), http.StatusOK, []string{"Idempotency-Key", "call-1"}},
		{strings.Replace(welcome, `"inapp"`, `"push"`, 1), http.StatusBadRequest, nil}, // it is there twice
		{strings.Replace(welcome, `24h`, `23h`, 1), http.StatusConflict, nil},
		{strings.Replace(welcome, `"n":1`, `"n":2`, 1), http.StatusConflict, nil},
		{
			`{"event_id":"call-2","event_type":"ALARM","priority":"critical","recipients":[{"recipient_type":"ADMIN","user_id":"bob"}],"channels":["push"]}`,
			http.StatusAccepted, nil,
		},
	} {
		w.wants(call.status, http.MethodPost, "/v1/notify", call.body, call.header...)
	}
	all := p.settled(2)
	p.until("the third waits", func() bool {
		all = p.deliveries()
		return len(all) == 3 && all["call-1.push.CUSTOMER.ada"].State == "deferred"
	})
	item := check.Must(n.Inbox.Get(t.Context(), "CUSTOMER", "ada", "call-1"))(t)
	check.That(t, item.Template == "welcome" && item.Category == "hello" && item.EventType == "NOTIFICATION", "%+v", item)
	check.Equal(t, string(item.Payload), `{"n":1}`)
	d := all["call-2.push.ADMIN.bob"]
	check.That(t, d != nil && d.State == deliveries.Sent, "%+v", d)
	check.OK(t, check.Err(p.js.Publish(t.Context(), "events./routed.X", []byte(strings.Replace(routedEvent, "inapp", "fax", 1)))))
	p.until("a route with mistakes is refused", func() bool { return len(p.deadLetters()) == 1 })
	reply, err := p.nc.RequestMsgWithContext(t.Context(), &nats.Msg{
		Subject: "notifier.v1.notify", Data: []byte(strings.Replace(welcome, `"event_id":"call-1",`, "", 1)), Header: nats.Header{"Idempotency-Key": {"call-1"}},
	})
	check.That(t, err == nil && strings.Contains(string(reply.Data), `"duplicate":true`), "%s: %v", reply.Data, err)
}

// All that is wrong with a notification is in one answer.
func TestMistakesOfANotification(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	w := newHTTPClient(t, p.start(&provider{}, listening, func(c *Config) {
		c.EmailServer, c.EmailFrom, c.Templates = "127.0.0.1:1", "notify@example.com", writeTexts(t, "known", "Hello", "Hello", "")
	}))
	for body, wants := range map[string][]string{
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
		want := http.StatusBadRequest
		if strings.Contains(body, `"call-3"`) { // it is well-formed
			want = http.StatusUnprocessableEntity
		}
		check.Contains(t, w.wants(want, http.MethodPost, "/v1/notify", body), wants...)
	}
	check.Contains(t, w.wants(http.StatusBadRequest, http.MethodPost, "/v1/notify", welcome, "Idempotency-Key", "other"), "Idempotency-Key")
	twice := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, w.base+"/v1/notify", strings.NewReader(welcome)))(t)
	twice.Header["Idempotency-Key"] = []string{"call-1", "call-2"}
	resp := check.Must(w.client.Do(twice))(t)
	check.OK(t, resp.Body.Close())
	check.Equal(t, resp.StatusCode, http.StatusBadRequest, "status of two keys")
	for _, member := range []string{`"priority":"low","priority":"high"`, `"payload":{"a":1,"a":2}`, `"channels":["inapp"],"event_id":"x"`} {
		check.Contains(t, w.wants(http.StatusBadRequest, http.MethodPost, "/v1/notify", strings.TrimSuffix(welcome, "}")+","+member+"}"), "twice")
	}
}

// A key that may publish events chooses no channels, and one that chooses channels no addresses.
func TestScopesOfNotifications(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	keys, of := filepath.Join(t.TempDir(), "keys.json"), map[access.Scope][]string{}
	for scope, scopes := range map[access.Scope][]access.Scope{
		access.Publish: {access.Publish}, access.Notify: {access.Notify}, access.Address: {access.Address, access.Notify},
	} {
		of[scope] = addKey(t, keys, access.Key{Name: string(scope), Scopes: scopes})
	}
	w := newHTTPClient(t, p.start(&provider{}, listening, func(c *Config) { c.Keys = keys }))
	awake := strings.Replace(welcome, `"ada"`, `"ada","quiet_hours":{"from":"00:00","to":"00:00"}`, 1)
	for _, test := range []struct {
		key        access.Scope
		path, body string
		status     int
	}{
		{access.Publish, "/v1/notify", welcome, http.StatusForbidden},
		{access.Publish, "/v1/events", routedEvent, http.StatusBadRequest},
		{access.Notify, "/v1/events", reservation, http.StatusForbidden},
		{access.Notify, "/v1/notify", strings.Replace(welcome, `"ada"`, `"ada","addresses":{"push":"x"}`, 1), http.StatusForbidden},
		{access.Notify, "/v1/notify", awake, http.StatusForbidden},
		{access.Address, "/v1/notify", awake, http.StatusAccepted},
		{access.Notify, "/v1/notify", strings.Replace(welcome, "call-1", "call-2", 1), http.StatusAccepted},
	} {
		w.wants(test.status, http.MethodPost, test.path, test.body, of[test.key]...)
	}
}

const routedEvent = `{"event_id":"evt-666","event_type":"X","aggregate_type":"Y","recipients":[{"recipient_type":"CUSTOMER","user_id":"ada"}],` +
	`"route":{"channels":["inapp","push"],"priority":"critical","template":"your-account-is-blocked"}}`

// A source system, with what deploy/nats permits it, chooses no channels: events that do so are not stored under the subjects that are
// for them, and refused under all others. The service itself is permitted to.
func TestASourceChoosesNoChannels(t *testing.T) {
	t.Parallel()
	p, users := administered(t, "push")
	p.directory(contracts.Recipient{UserID: "ada", RecipientType: "CUSTOMER"})
	n := p.start(&provider{}, listening)
	denied := make(chan error, 10)
	source, _ := natstest.Connect(t, p.srv, users.As("publisher"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	js := check.Must(jetstream.New(source))(t)
	check.OK(t, source.Publish("events./routed.X", []byte(routedEvent)))
	check.ErrorIs(t, <-denied, nats.ErrPermissionViolation)
	check.OK(t, check.Err(js.Publish(t.Context(), "events.Y.X", []byte(routedEvent))))
	p.until("it is refused", func() bool { return len(p.deadLetters()) == 1 })
	check.Contains(t, p.deadLetters()[0].Error, "/route is not for a source of events")
	reply, err := source.RequestWithContext(t.Context(), "notifier.v1.publish", []byte(routedEvent))
	check.That(t, err == nil && strings.Contains(string(reply.Data), "/route"), "%s: %v", reply.Data, err)
	check.ErrorIs(t, check.Err(source.RequestWithContext(t.Context(), "notifier.v1.notify", []byte(welcome))), nats.ErrNoResponders)
	newHTTPClient(t, n).wants(http.StatusAccepted, http.MethodPost, "/v1/notify", strings.Replace(welcome, "24h", "1s", 1))
	all := p.settled(2)
	check.Equal(t, len(all), 2, "notifications")
	for key := range all {
		check.That(t, strings.HasPrefix(key, "call-1."), "%s is a notification", key)
	}
}

// A test message comes at once, says that it is one, and is nobody's: no notification, no link to switch anything off.
func TestATestMessage(t *testing.T) {
	t.Parallel()
	mailing, mails := withMails(t, "hello {{.Payload.n}}", "{{.DateTime .Payload.at}} ({{.Unsubscribe}})")
	p := newFixture(t, natstest.Server(t))
	n := p.start(&provider{}, listening, mailing)
	w := newHTTPClient(t, n)
	const path = "/v1/templates/test"
	sent := answerTo[TestSent](w, http.MethodPost, path, `{"template":"X","channel":"email","to":"ada@example.org","time_zone":"Europe/Rome",
		"locale":"it","payload":{"n":5,"at":"2026-11-25T22:05:00Z"}}`)
	check.Require(t, sent.Problem == "" && strings.HasPrefix(sent.ID, "test_"), "%+v", sent)
	m := <-mails
	text := check.Must(io.ReadAll(m.Body))(t)
	check.Equal(t, m.Header.Get("Subject"), "[test] hello 5", "subject")
	check.Equal(t, strings.TrimSpace(string(text)), "25/11/2026 23:05 ()", "text")
	check.Equal(t, m.Header.Get("List-Unsubscribe"), "", "link")

	sent = answerTo[TestSent](w, http.MethodPost, path, `{"template":"Y","channel":"email","to":"ada@example.org"}`)
	check.Contains(t, sent.Problem, "email: misconfigured: no text")
	check.Contains(t, w.wants(http.StatusBadRequest, http.MethodPost, path, `{"channel":"inapp"}`), "/template", "/to", "/channel")
	w.wants(http.StatusBadRequest, http.MethodPost, path, `[]`)
	check.Equal(t, len(p.stored())+len(p.deliveries()), 0, "notifications")
}

// Acts of operators over HTTP are recorded under the name of the key, whatever the request says, and those over NATS without a
// name. The user is a pseudonym. Requests that are refused, or that only read, leave nothing. Without a place for the record nothing is
// cancelled, replayed or enabled, and the caller may ask again.
func TestOperatorsLeaveRecords(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	keys := filepath.Join(t.TempDir(), "keys.json")
	operator := addKey(t, keys, access.Key{Name: "olga", Scopes: []access.Scope{access.Operate, access.Read}})
	reader := addKey(t, keys, access.Key{Name: "rita", Scopes: []access.Scope{access.Read}})
	p.directory(users("RESTAURANT_USER", 2)...)
	n := p.start(&provider{}, func(c *Config) { c.Keys, c.Listen = keys, "127.0.0.1:0" })
	w := newHTTPClient(t, n)
	publish := func(id string, notifications int) {
		p.publish(event(id, "RESERVATION_REQUESTED", toStaff, notBefore(time.Now().Add(time.Hour))))
		p.until("notifications wait", func() bool { return len(p.deliveries()) == notifications })
	}
	publish("evt-1", 4)
	user := users("RESTAURANT_USER", 1)[0].UserID
	for _, c := range []struct {
		key                []string
		method, path, body string
		want               int
	}{
		{reader, http.MethodDelete, "/v1/events/evt-1", "", http.StatusForbidden},
		{operator, http.MethodGet, "/v1/endpoints", "", http.StatusOK},
		{operator, http.MethodDelete, "/v1/events/evt-1?type=RESTAURANT_USER&user=" + user, "", http.StatusOK},
		{operator, http.MethodPost, "/v1/notifications/replay?state=failed", "", http.StatusOK},
		{operator, http.MethodPost, "/v1/endpoints/enable", `{"channel":"webhook","id":"0f"}`, http.StatusNotFound},
	} {
		w.wants(c.want, c.method, c.path, c.body, append(c.key, "X-Actor", "mallory", "Nats-Request-Info", `{"user":"mallory"}`)...)
	}
	check.ErrorIs(t, check.Err(p.nc.Request("notifier.v1.cancel", []byte(`{"event_id":"evt-1","actor":"mallory"}`), patience)), nil)
	records, err := audit.List(t.Context(), p.js, 10)
	check.Require(t, err == nil && len(records) == 4, "%+v %v", records, err)
	for i, want := range []audit.Record{
		{Actor: audit.ActorNATS, Action: "cancel", Target: `notifications event="evt-1"`, Count: 4, Outcome: audit.Done},
		{Actor: "olga", Action: "enable", Target: "endpoint 0f of webhook", Outcome: audit.Failed},
		{Actor: "olga", Action: "replay", Target: `notifications state="failed"`, Outcome: audit.Done},
		{
			Actor: "olga", Action: "cancel", Count: 2, Outcome: audit.Done,
			Target: `notifications event="evt-1" type="RESTAURANT_USER" user="` + audit.User(user) + `"`,
		},
	} {
		want.ID, want.At, want.Source = records[i].ID, records[i].At, "notifier"
		check.Equal(t, records[i], want, "records[i]")
	}

	publish("evt-2", 8)
	check.OK(t, p.js.DeleteStream(t.Context(), contracts.StreamAudit))
	var waiting sync.WaitGroup
	for path, method := range map[string]string{
		"/v1/events/evt-2": http.MethodDelete, "/v1/notifications/replay?state=failed": http.MethodPost, "/v1/endpoints/enable": http.MethodPost,
	} {
		waiting.Go(func() { // each for the ten seconds that an election of the stream's leader may take
			status, body := w.call(method, path, `{"channel":"webhook","id":"0f"}`, operator...)
			check.That(t, status == http.StatusServiceUnavailable && strings.Contains(body, "STORE_UNAVAILABLE"), "%s: %d %s", path, status, body)
		})
	}
	waiting.Wait()
	for key, d := range p.deliveries() {
		check.Equal(t, d.State.Ended(), strings.HasPrefix(key, "evt-1."), key)
	}
}

// text is a JSON text of as many bytes, with the quotes.
func text(size int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`) }

// A payload is carried whole up to its limit, and refused by name beyond it: at once over HTTP, and by a dead letter from the stream.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 1)...)
	push := &provider{}
	w := newHTTPClient(t, p.start(push, listening))
	large := func(id string, size int) recipient.Event {
		return event(id, "RESERVATION_REQUESTED", func(e *recipient.Event) { e.Payload, e.RecipientType = text(size), "RESTAURANT_USER" })
	}
	const tooLarge = 1_000_000 // it fits into a message, but not into a plan
	for size, want := range map[int]int{plan.MaxPayload: http.StatusAccepted, tooLarge: http.StatusRequestEntityTooLarge} {
		status, answer := w.call(http.MethodPost, "/v1/events", string(check.Must(contracts.Encode(large("http", size)))(t)))
		check.That(t, status == want && (want == http.StatusAccepted || strings.Contains(answer, "786432")), "%d bytes: %d %.300s", size, status, answer)
	}
	p.publish(large("stream", plan.MaxPayload))
	p.publish(large("too large", tooLarge))
	p.settled(4)
	push.mu.Lock()
	for _, sent := range push.sent {
		check.That(t, bytes.Equal(sent[0].Payload, text(plan.MaxPayload)), "%s: the payload has %d bytes", sent[0].EventID, len(sent[0].Payload))
	}
	push.mu.Unlock()
	messages, _ := push.counts()
	check.Equal(t, messages, 2, "messages")
	p.until("it is a dead letter", func() bool { return len(p.deadLetters()) == 1 })
	check.Contains(t, p.deadLetters()[0].Error, "786432")
	// More than a message can hold never leaves its sender.
	publisher := check.Must(contracts.NewPublisher(p.js, contracts.PublisherConfig{}))(t)
	huge := contracts.Event{EventID: "huge", EventType: "X", AggregateType: "Y", Payload: text(contracts.MaxBody)}
	check.ErrorContains(t, check.Err(publisher.Publish(t.Context(), huge)), "1048576")
}

const day = 24 * time.Hour

// Users who have read an event in the inbox, or removed it there, are not notified of it on a later channel. All others are, by
// notifiers that were started after it was published, on the minute, and not in quiet hours. A channel without unread notifies all.
func TestWhatIsUnreadIsDeliveredLater(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newFixture(t, srv, nats.PingInterval(100*day))
		var begin time.Time
		var mu sync.Mutex
		got := map[string][]time.Duration{}
		receive := func(_ context.Context, m channel.Message) (channel.Receipt, error) {
			mu.Lock()
			defer mu.Unlock()
			got[m.UserID] = append(got[m.UserID], time.Since(begin).Truncate(time.Second))
			return channel.Receipt{}, nil
		}
		cfg := config(&provider{send: receive}, writeRules(t, `
version: 1
events: {X: {CUSTOMER: {scope: user, channels: [inapp], later: [{after: 30m, unread: true, channels: [push]}, {after: 48h, channels: [sms]}]}}}`))
		cfg.Channels = append(cfg.Channels, Channel{Channel: &provider{name: "sms", send: receive}})
		cfg.RulesEvery = day
		begin = time.Now().Truncate(time.Minute).Add(time.Minute) // 00:01
		// Under fake time each second of a notifier takes time, so one lives for a second before and after a moment only.
		at := func(since time.Duration, do ...func()) {
			natstest.Pass(time.Until(begin.Add(since - time.Second)))
			n := check.Must(Start(t.Context(), p.nc, cfg))(t)
			natstest.Pass(time.Second)
			for _, f := range do {
				f()
			}
			natstest.Pass(time.Second)
			check.OK(t, n.Stop())
		}
		box, directory := inapp.New(p.js, recordtest.Client(t, p.js), nil), p.directory()
		mark := func(user string, state inapp.State) func() {
			return func() { check.OK(t, check.Err(box.Mark(t.Context(), "CUSTOMER", user, user, state))) }
		}
		night := &contracts.QuietHours{From: "00:20", To: "07:00"}
		const soon, later, morning = 30 * time.Minute, 48 * time.Hour, 7*time.Hour - time.Minute
		want := map[string][]time.Duration{}
		var publish []func()
		for _, user := range []struct {
			id        string
			want      []time.Duration // on the channels that come later, since the event
			quiet     *contracts.QuietHours
			notBefore time.Duration
			optOut    map[string][]string
		}{
			{id: "unread", want: []time.Duration{soon, later}},
			{id: "reads", want: []time.Duration{later}},
			{id: "archives", want: []time.Duration{later}},
			{id: "reads-too-late", want: []time.Duration{soon, later}},
			{id: "removes", want: []time.Duration{later}},
			{id: "no-inbox", want: []time.Duration{soon, later}, optOut: map[string][]string{"*": {"inapp"}}},
			{id: "asleep", want: []time.Duration{morning, later}, quiet: night},
			{id: "reads-at-night", want: []time.Duration{later}, quiet: night},
			{id: "deferred", want: []time.Duration{2*time.Hour + soon, 2*time.Hour + later}, notBefore: 2 * time.Hour},
		} {
			want[user.id] = user.want
			check.OK(t, directory.Put(t.Context(), contracts.Recipient{
				UserID: user.id, RecipientType: "CUSTOMER", QuietHours: user.quiet, OptOut: user.optOut,
			}))
			publish = append(publish, func() {
				p.publish(event(user.id, "X", func(e *recipient.Event) {
					if e.UserID = user.id; user.notBefore > 0 {
						e.NotBefore = begin.Add(user.notBefore)
					}
				}))
			})
		}
		at(0, publish...)
		at(10*time.Minute, mark("reads", inapp.Read), func() {
			kv := check.Must(p.js.KeyValue(t.Context(), contracts.BucketInbox))(t)
			check.OK(t, kv.Delete(t.Context(), "CUSTOMER.removes.removes"))
		})
		at(20*time.Minute, func() { check.OK(t, srv.Restart(t.Context())) })
		at(29*time.Minute, mark("archives", inapp.Archived))
		at(soon)
		at(31*time.Minute, mark("reads-too-late", inapp.Read))
		at(2 * time.Hour)
		at(2*time.Hour + soon)
		at(3*time.Hour, mark("reads-at-night", inapp.Read))
		at(morning)
		at(later)
		at(2*time.Hour + later)
		check.Equal(t, got, want)
		d, err := p.store.Get(t.Context(), "reads.push.CUSTOMER.reads")
		check.That(t, err == nil && d.State == deliveries.Suppressed && d.Reason == deliveries.ReasonRead && len(d.Attempts) == 0,
			"%+v: %v", d, err)
	})
}

// A notification that is delivered later can be cancelled, and an event whose notifications would wait for longer than they are kept is
// refused.
func TestWhatIsDeliveredLaterIsCancelled(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	n := p.start(&provider{}, func(c *Config) {
		c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [inapp], later: [{after: 24h, channels: [push]}]}}}")
	})
	p.directory(contracts.Recipient{UserID: "ada", RecipientType: "CUSTOMER"})
	e := event("evt-001", "X", func(e *recipient.Event) { e.UserID = "ada" })
	check.OK(t, check.Err(n.Publish(t.Context(), e)))
	p.settled(1)
	p.expanded(n, "evt-001")
	known, err := n.Event(t.Context(), "evt-001")
	done, cancelErr := n.Cancel(t.Context(), Cancellation{EventID: "evt-001"})
	check.That(t, cmp.Or(err, cancelErr) == nil && known.Planned == 2 && done.Suppressed == 1 && done.Sent == 1,
		"%+v, %+v: %v, %v", known, done, err, cancelErr)
	e.EventID, e.NotBefore = "evt-002", time.Now().Add(rules.MaxDelay-23*time.Hour)
	check.ErrorIs(t, check.Err(n.Publish(t.Context(), e)), plan.ErrTooFar)
}
