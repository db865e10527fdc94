package notifier

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

const welcome = `{"event_id":"call-1","recipients":[{"recipient_type":"CUSTOMER","user_id":"ada"}],"channels":["inapp"],` +
	`"later":[{"after":"24h","unread":true,"channels":["pigeon"]}],"category":"hello","template":"welcome","payload":{"n":1}}`

// A notification goes where it says, without a rule. The same call again changes nothing, in whatever order its fields are; another one
// under its id is refused.
func TestNotify(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
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
	check.That(t, err == nil && strings.Contains(string(reply.Data), `"duplicate":true`), "%s: %v", reply.Data, err)
}

// All that is wrong with a notification is in one answer.
func TestMistakesOfANotification(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	w := newWeb(t, p.start(&pigeon{}, listening, func(c *Config) {
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
		status, answer := w.call(http.MethodPost, "/v1/notify", body)
		want := http.StatusBadRequest
		if strings.Contains(body, `"call-3"`) { // it is well-formed
			want = http.StatusUnprocessableEntity
		}
		check.Equal(t, status, want, "status of "+body[:min(len(body), 99)])
		check.Contains(t, answer, wants...)
	}
	status, answer := w.call(http.MethodPost, "/v1/notify", welcome, "Idempotency-Key", "other")
	check.That(t, status == http.StatusBadRequest && strings.Contains(answer, "Idempotency-Key"), "%d %s", status, answer)
	twice := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, w.base+"/v1/notify", strings.NewReader(welcome)))(t)
	twice.Header["Idempotency-Key"] = []string{"call-1", "call-2"}
	resp := check.Must(w.client.Do(twice))(t)
	check.OK(t, resp.Body.Close())
	check.Equal(t, resp.StatusCode, http.StatusBadRequest, "status of two keys")
	for _, member := range []string{`"priority":"low","priority":"high"`, `"payload":{"a":1,"a":2}`, `"channels":["inapp"],"event_id":"x"`} {
		status, answer := w.call(http.MethodPost, "/v1/notify", strings.TrimSuffix(welcome, "}")+","+member+"}")
		check.That(t, status == http.StatusBadRequest && strings.Contains(answer, "twice"), "%s: %d %s", member, status, answer)
	}
}

// A key that may publish events chooses no channels, and one that chooses channels no addresses.
func TestScopesOfNotifications(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	keys, of := filepath.Join(t.TempDir(), "keys.json"), map[access.Scope][]string{}
	for scope, scopes := range map[access.Scope][]access.Scope{
		access.Publish: {access.Publish}, access.Notify: {access.Notify}, access.Address: {access.Address, access.Notify},
	} {
		of[scope] = addKey(t, keys, access.Key{Name: string(scope), Scopes: scopes})
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
		status, answer := w.call(http.MethodPost, test.path, test.body, of[test.key]...)
		check.That(t, status == test.status, "%s: %s %s: %d %s", test.key, test.path, test.body, status, answer)
	}
}

const routedEvent = `{"event_id":"evt-666","event_type":"X","aggregate_type":"Y","recipients":[{"recipient_type":"CUSTOMER","user_id":"ada"}],` +
	`"route":{"channels":["inapp","pigeon"],"priority":"critical","template":"your-account-is-blocked"}}`

// A source system, with what deploy/nats permits it, chooses no channels: events that do so are not stored under the subjects that are
// for them, and refused under all others. The service itself is permitted to.
func TestASourceChoosesNoChannels(t *testing.T) {
	t.Parallel()
	p, users := administered(t, "pigeon")
	p.directory(contracts.Recipient{UserID: "ada", RecipientType: "CUSTOMER"})
	n := p.start(&pigeon{}, listening)
	denied := make(chan error, 10)
	source, _ := natstest.Connect(t, p.srv, users.As("publisher"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	js := check.Must(jetstream.New(source))(t)
	check.OK(t, source.Publish("events./routed.X", []byte(routedEvent)))
	check.ErrorIs(t, <-denied, nats.ErrPermissionViolation)
	check.OK(t, check.Err(js.Publish(t.Context(), "events.Y.X", []byte(routedEvent))))
	p.until("it is refused", func() bool { return len(p.letters()) == 1 })
	check.Contains(t, p.letters()[0].Error, "/route is not for a source of events")
	reply, err := source.RequestWithContext(t.Context(), "notifier.v1.publish", []byte(routedEvent))
	check.That(t, err == nil && strings.Contains(string(reply.Data), "/route"), "%s: %v", reply.Data, err)
	check.ErrorIs(t, check.Err(source.RequestWithContext(t.Context(), "notifier.v1.notify", []byte(welcome))), nats.ErrNoResponders)
	status, answer := newWeb(t, n).call(http.MethodPost, "/v1/notify", strings.Replace(welcome, "24h", "1s", 1))
	check.That(t, status == http.StatusAccepted, "%d %s", status, answer)
	all := p.settled(2)
	check.Equal(t, len(all), 2, "rows")
	for key := range all {
		check.That(t, strings.HasPrefix(key, "call-1."), "%s is a row", key)
	}
}

// A test message comes at once, says that it is one, and is nobody's: no notification, no link to switch anything off.
func TestATestMessage(t *testing.T) {
	t.Parallel()
	mailing, mails := withMails(t, "hello {{.Payload.n}}", "{{.DateTime .Payload.at}} ({{.Unsubscribe}})")
	p := newPlace(t, natstest.Server(t))
	n := p.start(&pigeon{}, listening, mailing)
	w := newWeb(t, n)
	const path = "/v1/templates/test"
	status, body := w.call(http.MethodPost, path, `{"template":"X","channel":"email","to":"ada@example.org","time_zone":"Europe/Rome","locale":"it",
		"payload":{"n":5,"at":"2026-11-25T22:05:00Z"}}`)
	var sent TestSent
	check.OK(t, json.Unmarshal([]byte(body), &sent))
	check.Require(t, status == http.StatusOK && sent.Problem == "" && strings.HasPrefix(sent.ID, "test_"), "%d %s", status, body)
	m := <-mails
	text := check.Must(io.ReadAll(m.Body))(t)
	check.Equal(t, m.Header.Get("Subject"), "[test] hello 5", "subject")
	check.Equal(t, strings.TrimSpace(string(text)), "25/11/2026 23:05 ()", "text")
	check.Equal(t, m.Header.Get("List-Unsubscribe"), "", "link")

	status, body = w.call(http.MethodPost, path, `{"template":"Y","channel":"email","to":"ada@example.org"}`)
	check.That(t, status == http.StatusOK, "%d", status)
	check.Contains(t, body, `"problem":"email: misconfigured: no text`)
	status, body = w.call(http.MethodPost, path, `{"channel":"inapp"}`)
	check.That(t, status == http.StatusBadRequest, "%d", status)
	check.Contains(t, body, "/template", "/to", "/channel")
	status, _ = w.call(http.MethodPost, path, `[]`)
	check.That(t, status == http.StatusBadRequest, "%d", status)
	check.Equal(t, len(p.rows())+len(p.deliveries()), 0, "rows")
}

// Acts of operators over HTTP are recorded under the name of the key, whatever the request says, and those over NATS without a
// name. The user is a pseudonym. Requests that are refused, or that only read, leave nothing. Without a place for the record nothing is
// cancelled, replayed or enabled, and the caller may ask again.
func TestOperatorsLeaveRecords(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	keys := filepath.Join(t.TempDir(), "keys.json")
	operator := addKey(t, keys, access.Key{Name: "olga", Scopes: []access.Scope{access.Operate, access.Read}})
	reader := addKey(t, keys, access.Key{Name: "rita", Scopes: []access.Scope{access.Read}})
	p.directory(users("RESTAURANT_USER", 2)...)
	n := p.start(&pigeon{}, func(c *Config) { c.Keys, c.Listen = keys, "127.0.0.1:0" })
	w := newWeb(t, n)
	tell := func(id string, rows int) {
		p.publish(event(id, "RESERVATION_REQUESTED", func(e *recipient.Event) {
			e.RecipientType, e.NotBefore = "RESTAURANT_USER", time.Now().Add(time.Hour)
		}))
		p.until("rows wait", func() bool { return len(p.deliveries()) == rows })
	}
	tell("evt-1", 4)
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
		status, answer := w.call(c.method, c.path, c.body, append(c.key, "X-Actor", "mallory", "Nats-Request-Info", `{"user":"mallory"}`)...)
		check.That(t, status == c.want, "%s %s: %d %s", c.method, c.path, status, answer)
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

	tell("evt-2", 8)
	check.OK(t, p.js.DeleteStream(t.Context(), contracts.StreamAudit))
	for path, method := range map[string]string{
		"/v1/events/evt-2": http.MethodDelete, "/v1/notifications/replay?state=failed": http.MethodPost, "/v1/endpoints/enable": http.MethodPost,
	} {
		status, answer := w.call(method, path, `{"channel":"webhook","id":"0f"}`, operator...)
		check.That(t, status == http.StatusServiceUnavailable && strings.Contains(answer, "STORE_UNAVAILABLE"), "%s: %d %s", path, status, answer)
	}
	for key, d := range p.deliveries() {
		check.Equal(t, d.State.Ended(), strings.HasPrefix(key, "evt-1."), key)
	}
}

// text is a JSON text of as many bytes, with the quotes.
func text(size int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
}

// An event is one event by whichever ways it comes, also with members and spellings that the notifier ignores, and another is refused by
// each way.
func TestOneEventByAllWays(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	birds := &pigeon{}
	w := newWeb(t, p.start(birds, listening))
	publisher := check.Must(contracts.NewPublisher(p.js, recipient.PublisherConfig()))(t)
	outcome := func(body []byte, status string) string {
		var done Accepted
		switch {
		case strings.Contains(status+string(body), "another event"):
			return "another"
		case json.Unmarshal(body, &done) != nil || done.EventID == "":
			return status + string(body)
		case done.Duplicate:
			return "duplicate"
		}
		return "new"
	}
	post := func(body string, header ...string) string {
		status, answer := w.call(http.MethodPost, "/v1/events", body, header...)
		return outcome([]byte(answer), http.StatusText(status))
	}
	ways := map[string]func(body string) string{
		"http": func(body string) string { return post(body) },
		"cloudevent": func(body string) string {
			return post(body, "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/other", "ce-type", "com.example.x", "Content-Type", "application/json")
		},
		"micro": func(body string) string {
			answer := check.Must(p.nc.RequestWithContext(t.Context(), "notifier.v1.publish", []byte(body)))(t)
			return outcome(answer.Data, answer.Header.Get("Nats-Service-Error"))
		},
		"publisher": func(body string) string { // with all members, as a relay publishes them
			done, err := publisher.Publish(t.Context(), check.Must(contracts.Decode[contracts.Event]([]byte(body)))(t))
			answer := check.Must(json.Marshal(Accepted{Duplicate: done.Duplicate, EventID: "e"}))(t)
			return outcome(answer, fmt.Sprint(err))
		},
	}
	for first := range ways {
		body := `{"event_id":"` + first + `","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT","restaurant_id":"5","user_id":"",
			"recipientType":"","recipients":[{"user_id":"u0","recipient_type":"RESTAURANT_USER","locale":"","odd":1}],"source_version":%s,
			"payload":{"guests":4.0,"half":"\udc00"},"Route":"no route"}`
		check.Equal(t, ways[first](fmt.Sprintf(body, "1")), "new", first)
		for way, publish := range ways {
			got := publish(fmt.Sprintf(body, "[2]"))
			check.That(t, got == "duplicate" || first == "publisher" && got == "new", "%s after %s: %s", way, first, got)
			other := strings.Replace(fmt.Sprintf(body, "1"), `"locale":""`, `"locale":"he"`, 1)
			check.Equal(t, publish(other), "another", "another by "+way+" after "+first)
		}
	}
	p.settled(2 * len(ways))
	birds.mu.Lock()
	defer birds.mu.Unlock()
	check.Equal(t, len(birds.sent), len(ways), "messages")
	for _, sent := range birds.sent {
		check.Equal(t, string(sent[0].Payload), `{"guests":4.0,"half":"\udc00"}`, "payload by "+sent[0].EventID)
	}
	check.Equal(t, len(p.letters()), 0, "dead letters")
}

// A payload is carried whole up to its limit, and refused by name beyond it, by whichever way it comes.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 1)...)
	birds := &pigeon{}
	w := newWeb(t, p.start(birds, listening))
	publisher := check.Must(contracts.NewPublisher(p.js, contracts.PublisherConfig{}))(t)
	// Each API returns its error for an event, "" when it has taken it.
	ways := map[string]func(e recipient.Event, body string) string{
		"http": func(_ recipient.Event, body string) string {
			status, answer := w.call(http.MethodPost, "/v1/events", body)
			if status == http.StatusAccepted {
				return ""
			}
			return http.StatusText(status) + answer
		},
		"micro": func(_ recipient.Event, body string) string {
			answer := check.Must(p.nc.RequestWithContext(t.Context(), "notifier.v1.publish", []byte(body)))(t)
			return answer.Header.Get("Nats-Service-Error-Code") + answer.Header.Get("Nats-Service-Error")
		},
		"publisher": func(e recipient.Event, _ string) string {
			check.ErrorIs(t, check.Err(publisher.Publish(t.Context(), check.Must(e.Message())(t))), nil)
			return ""
		},
		"stream": func(e recipient.Event, _ string) string {
			p.publish(e)
			return ""
		},
	}
	const tooLarge = 1_000_000 // it fits into a message, but not into a plan
	for way, tell := range ways {
		for _, size := range []int{plan.MaxPayload, tooLarge} {
			e := event(way, "RESERVATION_REQUESTED", func(e *recipient.Event) {
				e.Payload, e.RecipientType = text(size), "RESTAURANT_USER"
			})
			if size == tooLarge {
				e.EventID += "-too-large"
			}
			body := check.Must(contracts.Encode(e))(t)
			refused := tell(e, string(body))
			direct := way == "http" || way == "micro"
			want := size == tooLarge && direct
			check.That(t, (refused != "") == want && (!want || strings.Contains(refused, "786432")), "%s with %d bytes: %.300q", way, size, refused)
		}
	}
	p.settled(8)
	messages := map[string]json.RawMessage{}
	birds.mu.Lock()
	for _, sent := range birds.sent {
		messages[sent[0].EventID] = sent[0].Payload
	}
	birds.mu.Unlock()
	for way := range ways {
		check.That(t, bytes.Equal(messages[way], text(plan.MaxPayload)),
			"%s: a payload of %d bytes came as one of %d", way, plan.MaxPayload, len(messages[way]))
		_, told := messages[way+"-too-large"]
		check.That(t, !told, "%s: an event that is too large was published", way)
	}
	p.until("events that are too large are dead letters", func() bool { return len(p.letters()) == 2 })
	for _, letter := range p.letters() {
		check.That(t, strings.Contains(letter.Error, "786432") && letter.Stream == contracts.StreamEvents, "%+v", letter.Error)
	}
	// More than a message can hold never leaves its sender.
	huge := event("huge", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.Payload = text(contracts.MaxBody) })
	large := contracts.Event{EventID: "huge", EventType: huge.EventType, AggregateType: huge.AggregateType, Payload: huge.Payload}
	check.ErrorContains(t, check.Err(publisher.Publish(t.Context(), large)), "1048576")
	body := check.Must(json.Marshal(huge))(t)
	status, answer := w.call(http.MethodPost, "/v1/events", string(body))
	check.That(t, status == http.StatusRequestEntityTooLarge, "%d %.300s", status, answer)
	if _, err := p.nc.RequestWithContext(t.Context(), "notifier.v1.publish", body); err != nats.ErrMaxPayload { //nolint:errorlint // as it is
		t.Errorf("%v", err)
	}
}
