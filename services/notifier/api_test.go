package notifier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func listening(c *Config) { c.Listen = "127.0.0.1:0" }

// httpClient calls a notifier over HTTP.
type httpClient struct {
	*testing.T

	base   string
	client *http.Client
}

func newHTTPClient(t *testing.T, n *Notifier) *httpClient {
	t.Helper()
	client := &http.Client{Transport: servicetest.Described(t, api.OpenAPI).Transport(t, &http.Transport{}), Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	return &httpClient{T: t, base: n.URL(), client: client}
}

// call returns the status and the body of an answer.
func (w *httpClient) call(method, path, body string, header ...string) (int, string) {
	w.Helper()
	resp := w.request(w.Context(), method, path, body, header...)
	defer resp.Body.Close()
	data := check.Must(io.ReadAll(resp.Body))(w)
	return resp.StatusCode, string(data)
}

// wants makes a request that has to be answered with a status, and returns the body of the answer.
func (w *httpClient) wants(status int, method, path, body string, header ...string) string {
	w.Helper()
	got, answer := w.call(method, path, body, header...)
	check.That(w, got == status, "%s %s %.300s: %d %.300s, want %d", method, path, body, got, answer, status)
	return answer
}

// request makes a request with headers, which are names and values.
func (w *httpClient) request(ctx context.Context, method, path, body string, header ...string) *http.Response {
	w.Helper()
	r := check.Must(http.NewRequestWithContext(ctx, method, w.base+path, strings.NewReader(body)))(w)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return check.Must(w.client.Do(r))(w)
}

// answerTo makes a request that has to be answered with 200, and reads the answer.
func answerTo[T any](w *httpClient, method, path, body string) (v T) {
	w.Helper()
	check.OK(w, json.Unmarshal([]byte(w.wants(http.StatusOK, method, path, body)), &v))
	return v
}

// get is answerTo for a request without a body.
func get[T any](w *httpClient, path string) T {
	w.Helper()
	return answerTo[T](w, http.MethodGet, path, "")
}

const reservation = `{"event_id":"evt-001","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT","restaurant_id":5,` +
	`"recipientType":"RESTAURANT_USER","payload":{"guests":4}}`

// An event that was told over HTTP is told once, and refused with another payload: also long after the stream has
// forgotten its id, and over NATS.
func TestEventsOverHTTP(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 3)...)
	n := p.start(&provider{}, listening)
	w := newHTTPClient(t, n)
	check.Equal(t, w.wants(202, http.MethodPost, "/v1/events", reservation), `{"duplicate":false,"event_id":"evt-001","state":"seen"}`+"\n")
	p.settled(6)
	p.expanded(n, "evt-001")
	stream := check.Must(p.js.Stream(t.Context(), contracts.StreamEvents))(t)
	check.OK(t, stream.Purge(t.Context()))
	check.Contains(t, w.wants(200, http.MethodPost, "/v1/events", reservation), `"duplicate":true`)
	other := strings.Replace(reservation, "4", "5", 1)
	check.Contains(t, w.wants(409, http.MethodPost, "/v1/events", other), "EVENT_MISMATCH")
	for request, want := range map[[2]string]string{
		{"publish", reservation}: `"duplicate":true`, {"publish", other}: "EVENT_MISMATCH", {"get", `{"event_id":"evt-001"}`}: `"planned":6`,
		{"list", `{"event_id":"evt-001","channel":"push","state":"sent"}`}: `"state":"sent"`,
	} {
		reply := check.Must(p.nc.RequestWithContext(t.Context(), "notifier.v1."+request[0], []byte(request[1])))(t)
		check.Contains(t, string(reply.Data), want)
	}
	type answer struct {
		api.Event
		api.Page
	}
	known := get[answer](w, "/v1/events/evt-001?limit=4")
	check.That(t, known.State == "expanded" && known.Planned == 6 && known.Recipients == 3 && known.EventType == "RESERVATION_REQUESTED" &&
		len(known.Notifications) == 4 && known.Next != "",
		"%+v", known)
	rest := get[api.Page](w, "/v1/notifications?event=evt-001&limit=4&cursor="+known.Next)
	check.That(t, len(rest.Notifications) == 2 && rest.Next == "", "%+v", rest)
	seen := map[string]bool{}
	for _, n := range slices.Concat(known.Notifications, rest.Notifications) {
		seen[n.Channel+" "+n.UserID] = true
		check.That(t,
			n.State.Ended() && len(n.Attempts) == 1 && n.EventType == "RESERVATION_REQUESTED" && n.MessageID != "" && !n.CreatedAt.IsZero(),
			"%+v", n)
	}
	check.That(t, len(seen) == 6, "%d notifications: %v", len(seen), seen)
	check.Equal(t, len(p.deliveries()), 6, "notifications")
	// An id that is a step of a path for clients and proxies.
	w.wants(202, http.MethodPost, "/v1/events", strings.Replace(reservation, "evt-001", ".", 1))
	p.settled(12)
	for _, path := range []string{"/v1/events?event=.", "/v1/events/%2E"} {
		dot := get[answer](w, path)
		check.That(t, dot.EventID == "." && len(dot.Notifications) == 6, "%s: %+v", path, dot)
	}
	gone := w.cancel("/v1/events?event=.")
	check.That(t, gone.EventID == "." && gone.Sent == 6, "%+v", gone)
}

// Any CloudEvent is an event, over HTTP in binary mode; its sender says which users it is about.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	w := newHTTPClient(t, p.start(&provider{}, listening))
	binary := []string{
		"Ce-Specversion", "1.0", "Ce-Id", "7", "Ce-Source", "/crm", "Ce-Type", "RESERVATION_REQUESTED", "Ce-Userid", "ada",
		"Ce-Recipienttype", "CUSTOMER", "Ce-Aggregatetype", "TABLE", "Content-Type", "application/json",
	}
	check.Contains(t, w.wants(202, http.MethodPost, "/v1/events", `{"seats":2}`, binary...), `"/crm|7"`)
	structured := `{"specversion":"1.0","id":"7","source":"/crm","type":"RESERVATION_REQUESTED","userid":"ada","recipienttype":"CUSTOMER",` +
		`"aggregatetype":"TABLE","data":{"seats":2}}`
	w.wants(400, http.MethodPost, "/v1/events", structured, "Content-Type", "application/cloudevents+json")
	w.wants(409, http.MethodPost, "/v1/events", `{"seats":3}`, binary...)
	p.settled(1)
	page := get[inapp.Page](w, "/v1/users/ada/inbox")
	check.That(t, len(page.Items) == 1 && string(page.Items[0].Payload) == `{"seats":2}` && page.Items[0].EventID == "/crm|7" && page.Counts.Unread == 1,
		"%+v", page)
	for at, want := range map[string]int{
		"tomorrow": http.StatusBadRequest, time.Now().Add(rules.MaxDelay + time.Hour).Format(time.RFC3339): http.StatusUnprocessableEntity,
		time.Now().Add(time.Hour).Format(time.RFC3339): http.StatusAccepted,
	} {
		w.wants(want, http.MethodPost, "/v1/events", `{"seats":2}`, slices.Concat(binary, []string{"Ce-Notbefore", at, "Ce-Id", "8"})...)
	}
	sold := contracts.CloudEvent{
		ID: "42", Source: "/shop", Type: "FOR_ALL", Extensions: map[string]string{"recipienttype": "ADMIN", "userid": "root"}, Data: []byte(`{"of":"shop"}`),
	}
	check.OK(t, check.Err(p.js.PublishMsg(t.Context(), check.Must(sold.Msg("events.SHOP.sold"))(t))))
	p.until("one that came over NATS", func() bool {
		page := get[inapp.Page](w, "/v1/users/root/inbox")
		return len(page.Items) == 1 && page.Items[0].EventID == "/shop|42" && string(page.Items[0].Payload) == `{"of":"shop"}`
	})
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	w := newHTTPClient(t, p.start(&provider{}, listening))
	long := strings.Repeat("x", contracts.MaxID+1)
	const list, enable = "/v1/endpoints", "/v1/endpoints/enable"
	for _, c := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{"POST", "/v1/events", `{`, 400, "JSON"},
		{"POST", "/v1/events", `{}`, 400, "/event_id"},
		{"POST", "/v1/events", `{"event_id":1,"event_type":[],"aggregate_type":"A"}`, 400, "/event_type"},
		{"POST", "/v1/events", `{"event_id":"1","event_id":"2","event_type":"A","aggregate_type":"A"}`, 400, "event_id"},
		{"POST", "/v1/events", strings.Repeat(" ", contracts.MaxBody+1), 413, "1024 KiB"},
		{"POST", "/v1/events", strings.Replace(reservation, "4", `"`+strings.Repeat("x", 900<<10)+`"`, 1), 413, "payload"},
		{"GET", "/v1/events/none", "", 404, "no such event"},
		{"GET", "/v1/events/" + long, "", 404, "no such event"},
		{"GET", "/v1/notifications?channel=*", "", 400, "?channel"},
		{"GET", "/v1/notifications?state=lost", "", 400, "?state"},
		{"GET", "/v1/notifications?limit=0", "", 400, "?limit"},
		{"GET", "/v1/notifications?limit=x&since=y", "", 400, "?since"},
		{"GET", "/v1/notifications?chanel=a", "", 400, "?chanel"},
		{"POST", "/v1/notifications/replay?evnt=e", "", 400, "?evnt"},
		{"GET", "/v1/notifications?cursor=%21", "", 400, "?cursor"},
		{"GET", "/v1/users/" + long + "/inbox", "", 400, "user"},
		{"GET", "/v1/users/a/inbox?type=*", "", 400, "?type"},
		{"GET", "/v1/users/a/inbox?state=unread,seen", "", 400, "?state"},
		{"PATCH", "/v1/users/a/inbox/e", `{}`, 400, "/state"},
		{"PATCH", "/v1/users/a/inbox/e", `{"state":"read"}`, 404, "no such item"},
		{"POST", "/v1/users/a/inbox", `read`, 400, "JSON"},
		{"POST", "/v1/users/a/inbox", `{"state":"read","events":["e"` + strings.Repeat(`,"e"`, 1000) + `]}`, 400, "/events"},
		{"PUT", "/v1/events", "", 405, "POST"},
		{"DELETE", "/v1/events", "", 400, "?event"},
		{"DELETE", "/v1/events/" + long, "", 404, "no such event"},
		{"DELETE", "/v1/events/digest:c:2000-01-01T00:15:00Z", "", 404, "no such event"},
		{"DELETE", "/v1/events/none?user=a", "", 400, "?user"},
		{"DELETE", "/v1/events/none?user=a&type=*", "", 400, "?type"},
		{"GET", list + "?state=healthy", "", 400, "?state"},
		{"GET", list + "?limit=1001", "", 400, "?limit"},
		{"GET", list + "?cursor=%21", "", 400, "?cursor"},
		{"POST", enable, "{}", 400, "/channel"},
		{"POST", enable, `{"channel":"push","id":"*"}`, 400, "/id"},
		{"POST", enable, `{"channel":"pu.sh","id":"a"}`, 400, "/channel"},
		{"POST", enable, `{"channel":"push","id":"` + strings.Repeat("a", 5000) + `"}`, 413, "limit"},
		{"POST", enable, `{"channel":"push","id":"0f"}`, 404, "push"},
	} {
		check.Contains(t, w.wants(c.status, c.method, c.path, c.body), c.text, `"type":"about:blank"`)
	}
	for _, c := range [][3]string{
		{"publish", `{}`, "400"},
		{"get", `{}`, "400"},
		{"get", `{"event_id":"none"}`, "404"},
		{"list", `x`, "400"},
		{"list", `{"state":"lost"}`, "400"},
		{"list", `{"limit":1001}`, "400"},
	} {
		reply := check.Must(p.nc.RequestWithContext(t.Context(), "notifier.v1."+c[0], []byte(c[1])))(t)
		check.That(t, reply.Header.Get("Nats-Service-Error-Code") == c[2], "%s %s: %v %s", c[0], c[1], reply.Header, reply.Data)
	}
	check.Equal(t, len(p.stored())+len(p.deliveries()), 0, "notifications")
}

func TestNotifierIsWatched(t *testing.T) {
	t.Parallel()
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "notifier"}))(t)
	p := newFixture(t, natstest.Server(t))
	w := newHTTPClient(t, p.start(&provider{}, listening, func(c *Config) { c.Exports, c.Version = exports, "1.2.3" }))
	w.wants(202, http.MethodPost, "/v1/events", strings.Replace(reservation, "RESTAURANT_USER", "CUSTOMER", 1))
	p.until("ready", func() bool { status, _ := w.call(http.MethodGet, "/readyz", ""); return status == http.StatusOK })
	check.Contains(t, w.wants(200, http.MethodGet, "/readyz?verbose", ""), "[+]nats ok", "[+]store ok", "[+]notifier ok",
		"[+]notifier-expand ok", "[+]notifier-send-inapp ok", "[+]notifier-send-push ok")
	check.Equal(t, w.wants(200, http.MethodGet, "/version", ""), "1.2.3\n", "version")
	p.directory(contracts.Recipient{RecipientType: "RESTAURANT_USER", UserID: "a"})
	w.wants(202, http.MethodPost, "/v1/events", strings.Replace(reservation, "evt-001", "evt-002", 1))
	p.until("metrics", func() bool {
		_, metrics := w.call(http.MethodGet, "/metrics", "")
		for _, want := range []string{
			`worker_job_attempts_total{consumer="notifier"`, `notifier_events_total{outcome="planned"} 1`,
			`notifier_events_total{outcome="refused"} 1`,
			`notifier_notifications_total{channel="push",reason="",state="sent"} 1`, `remote_call_duration_seconds_count{outcome="ok",remote="push"} 1`,
		} {
			if !strings.Contains(metrics, want) {
				return false
			}
		}
		return true
	})
}

// When many callers publish the same event at the same moment, at several instances, one of them is answered
// that it is new.
func TestOneTellsTheNews(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	instances := []*Notifier{p.start(&provider{}), p.start(&provider{})}
	for _, kind := range []string{"RESERVATION_REQUESTED", "OF_NO_CONCERN"} {
		var news atomic.Int64
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				done, err := instances[i%2].Publish(t.Context(), event("evt-"+kind, kind, func(e *recipient.Event) { e.UserID, e.RecipientType = "ada", "CUSTOMER" }))
				check.That(t, err == nil && done.Ignored == (kind == "OF_NO_CONCERN"), "%+v, %v", done, err)
				if !done.Duplicate {
					news.Add(1)
				}
			})
		}
		all.Wait()
		check.Equal(t, news.Load(), 1, kind+" is news to")
	}
	p.settled(1)
}

// keyring makes keys: of a user, of an application for all people, and of an operator.
func keyring(t *testing.T) (file string, carla, app, operator []string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "keys.json")
	return file, addKey(t, file, access.Key{Name: "carla", User: "carla", Scopes: []access.Scope{access.People}}),
		addKey(t, file, access.Key{Name: "app", Scopes: []access.Scope{access.People}}),
		addKey(t, file, access.Key{Name: "olga", Scopes: []access.Scope{access.Operate, access.People}})
}

// addKey makes a key, and returns the header of its requests.
func addKey(t *testing.T, file string, key access.Key) (header []string) {
	t.Helper()
	return []string{"Authorization", "Bearer " + check.Must(access.Add(file, key))(t)}
}

// A user's key has few requests answered in an hour, whatever it alternates, by however many instances, and also when the user was
// deleted and the notifier restarted. It pushes no record of an operator out of the audit, and the user can still take addresses away.
func TestAUserFloodsNobody(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	keys, carla, app, operator := keyring(t)
	hooks := check.Must(webhook.New(webhook.Config{Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}))(t)
	t.Cleanup(hooks.Close)
	push := &provider{}
	start := func() *httpClient {
		return newHTTPClient(t, p.start(push, listening, func(c *Config) { c.Keys, c.Channels = keys, append(c.Channels, Channel{Channel: hooks}) }))
	}
	instances := []*httpClient{start(), start()}
	flood := func(answered, n int, key []string, code, method, path, body string) {
		t.Helper()
		var got atomic.Int32
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				number := strings.NewReplacer("#", fmt.Sprint(i), "%", fmt.Sprint(i%3))
				resp := instances[i%len(instances)].request(t.Context(), method, "/v1/users/"+number.Replace(path), number.Replace(body), key...)
				text, err := io.ReadAll(resp.Body)
				check.OK(t, errors.Join(err, resp.Body.Close()))
				if resp.StatusCode < 300 {
					got.Add(1)
				} else {
					told := strings.Contains(string(text), `"code":"`+code+`"`) && resp.Header.Get("Retry-After") > "0"
					check.That(t, resp.StatusCode == http.StatusTooManyRequests && told, "%d %s %v", resp.StatusCode, text, resp.Header)
				}
			})
		}
		all.Wait()
		check.Equal(t, int(got.Load()), answered, "answers of "+method+" "+path)
	}
	const own, test = "CUSTOMER/carla", "/endpoints/push/main/test"
	flood(1, 1, operator, "", "PUT", own, `{"addresses":{"push":"hers","webhook":"https://example.com"}}`)
	flood(3, 3, carla, "", "PATCH", "T%/carla", `{"addresses":{"push":"victim"}}`) // the key is for all types
	flood(17, 57, carla, "QUOTA_CHANGE", "PATCH", "T%/carla", `{"addresses":{"push":"victim-#"}}`)
	flood(0, 1, carla, "QUOTA_CHANGE", "PATCH", "OTHER/carla", `{"mute":{"*":"2030-01-01T00:00:00Z"}}`)
	flood(0, 1, carla, "QUOTA_CHANGE", "PATCH", own, `{"endpoints":{"webhook":{"main":{"generation":9}}}}`) // a rotation by another way
	flood(5, 120, carla, "QUOTA_TEST", "POST", "T%/carla"+test, "")
	flood(20, 60, carla, "QUOTA_TEST", "POST", own+test, "") // vouched for by the operator
	flood(10, 30, carla, "QUOTA_ROTATE", "POST", own+"/endpoints/webhook/main/rotate", "")
	flood(10, 30, carla, "QUOTA_REPLAY", "POST", own+"/endpoints/webhook/main/replay", "")
	flood(3, 3, carla, "", "PATCH", "T%/carla", `{"addresses":{"push":null},"mute":{"*":"2030-01-01T00:00:00Z"}}`)
	flood(1, 1, app, "", "DELETE", own, "")
	flood(1, 1, app, "", "PUT", own, `{"addresses":{"push":"hers"}}`)
	instances = append(instances, start())
	flood(0, 9, carla, "QUOTA_TEST", "POST", own+test, "")
	flood(0, 9, app, "QUOTA_TEST", "POST", own+test, "")
	flood(120, 120, app, "", "PUT", "CUSTOMER/u#", `{"addresses":{"push":"one"}}`)
	flood(20, 120, app, "QUOTA_TEST", "POST", "CUSTOMER/u#"+test, "")
	messages, _ := push.counts()
	check.Equal(t, messages, 45, "messages")
	flood(1, 1, operator, "", "POST", own+test, "")

	records := check.Must(audit.List(t.Context(), p.js, audit.MaxList))(t)
	check.That(t, len(records) == 1 && records[0].Actor == "olga" && records[0].Action == "test", "%+v", records)
	refused := map[string]int{}
	records = check.Must(audit.ListUsers(t.Context(), p.js, audit.MaxList))(t)
	for _, r := range records {
		if r.Outcome == audit.Refused {
			refused[r.Actor+" "+r.Action] = max(refused[r.Actor+" "+r.Action], r.Count)
		}
	}
	check.Equal(t, refused, map[string]int{"app test": 10, "carla change": 10, "carla replay": 10, "carla rotate": 10, "carla test": 10})
	check.That(t, len(records) < 120, "%d records", len(records))

	p.bound("KV_deliveries", 1) // full: requests that cannot be counted are refused, and no others
	check.Contains(t, instances[0].wants(http.StatusInsufficientStorage, "POST", "/v1/users/CUSTOMER/u119"+test, "", app...), "STORE_FULL")
	flood(1, 1, carla, "", "GET", own, "")
	flood(1, 1, carla, "", "PATCH", own, `{"addresses":{"push":null},"opt_out":{"*":["*"]}}`)
	after, _ := push.counts()
	check.Equal(t, after, messages+1, "messages of a full store") // the operator's
}

// A user learns of a test message that failed, and of one that was sent, nothing in the words of the inner network. Operators and the
// log do.
func TestATestSaysNothingOfTheInnerNetwork(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	keys, carla, app, operator := keyring(t)
	var log bytes.Buffer
	const inner = "mx7.corp.internal:2525"
	var failure error
	push := &provider{send: func(context.Context, channel.Message) (channel.Receipt, error) {
		return channel.Receipt{ID: "queued at " + inner}, failure
	}}
	w := newHTTPClient(t, p.start(push, listening, func(c *Config) { c.Keys, c.Logger = keys, slog.New(slog.NewTextHandler(&log, nil)) }))
	const path = "/v1/users/CUSTOMER/carla"
	w.wants(http.StatusOK, http.MethodPut, path, `{"addresses":{"push":"x"}}`, operator...)
	for want, err := range map[string]error{
		"":                     nil,
		"push: unavailable":    &channel.Error{Channel: "push", Kind: channel.KindUnavailable, Cause: errors.New("dial tcp " + inner + ": connection refused")},
		"push: rejected (554)": &channel.Error{Channel: inner, Kind: channel.KindRejected, Status: 554, Detail: inner + " says no"},
		"push: unknown":        errors.New("lookup " + inner),
		"push: bounced (550)":  fmt.Errorf("%s: %w", inner, &channel.Error{Kind: channel.KindBounced, Status: 550}),
	} {
		failure = err
		for i, key := range [][]string{carla, app, operator} {
			var sent TestSent
			_, body := w.call(http.MethodPost, path+"/endpoints/push/main/test", "", key...)
			check.OK(t, json.Unmarshal([]byte(body), &sent))
			isOperator := i == 2
			check.That(t, strings.Contains(body, inner) == isOperator && (isOperator || sent.Problem == want), "%s, want %s", body, want)
		}
	}
	check.Contains(t, log.String(), "dial tcp "+inner, inner+" says no")
}

// Monitoring does not see which users follow their inboxes, whatever it asks for.
func TestMonitoringSeesNoUsers(t *testing.T) {
	t.Parallel()
	p, users := administered(t, "push")
	w := newHTTPClient(t, p.start(&provider{}, listening))
	p.directory(contracts.Recipient{RecipientType: "CUSTOMER", UserID: "carlotta"})
	_, end := w.listen("/v1/users/carlotta/inbox/events")
	defer end()
	nc, _ := natstest.Connect(t, p.srv, users.As("sys"))
	const all = `{"subscriptions":true,"subscriptions_detail":true,"auth":true,"accounts":true,"streams":true,"consumer":true,"config":true,"state":0,"subs":true}`
	answers := 0
	for _, kind := range []string{"", ".CONNZ", ".SUBSZ", ".ACCOUNTZ", ".JSZ", ".VARZ", ".HEALTHZ", ".STATSZ", ".ROUTEZ", ".GATEWAYZ", ".LEAFZ", ".IPQUEUESZ", ".RAFTZ"} {
		for _, subject := range []string{"$SYS.REQ.SERVER.PING" + kind, "$SYS.REQ.ACCOUNT.NOTIFIER" + kind, "$SYS.REQ.ACCOUNT.PING" + kind} {
			if msg, err := nc.RequestWithContext(t.Context(), subject, []byte(all)); err == nil {
				answers++
				check.That(t, !strings.Contains(string(msg.Data), "carlotta"), "%s: %s", subject, msg.Data)
			}
		}
	}
	check.That(t, answers > 0, "nothing was answered")
}

// A user with as many addresses of a channel as there may be sets the plain one, too, and has its secret replaced: what is noted of it
// is no further address. Beyond that there is none.
func TestMainIsBesideTheOtherAddresses(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	keys, carla, app, _ := keyring(t)
	hooks := check.Must(webhook.New(webhook.Config{Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}))(t)
	t.Cleanup(hooks.Close)
	w := newHTTPClient(t, p.start(&provider{}, listening, func(c *Config) { c.Keys, c.Channels = keys, append(c.Channels, Channel{Channel: hooks}) }))
	const path = "/v1/users/CUSTOMER/carla"
	all := map[string]any{}
	for n := range 20 {
		all[fmt.Sprintf("e%d", n)] = map[string]string{"address": fmt.Sprintf("https://%d.example.com", n)}
	}
	body := check.Must(json.Marshal(map[string]any{"endpoints": map[string]any{"webhook": all}}))(t)
	for _, c := range []struct {
		method, path, body string
		key                []string
		status             int
		want               string
	}{
		{"PUT", path, string(body), app, 200, ""},
		{"PATCH", path, `{"addresses":{"webhook":"https://main.example.com"}}`, carla, 200, `"main":{"unverified":true}`},
		{"POST", path + "/endpoints/webhook/main/rotate", "", carla, 200, "secret"},
		{"PATCH", path, `{"addresses":{"webhook":"https://other.example.com"},"mute":{"*":"2030-01-01T00:00:00Z"}}`, carla, 200, ""},
		{"PATCH", path, `{"endpoints":{"webhook":{"more":{"address":"https://more.example.com"}}}}`, carla, 400, "has 21 addresses beside main, at most 20"},
		{"PATCH", path, `{"endpoints":{"webhook":{"e1":null,"more":{"address":"https://more.example.com"}}}}`, carla, 200, ""},
		{"GET", path, "", carla, 200, `"webhook":"https://other.example.com"`},
		{"POST", path + "/endpoints/webhook/main/test?template=PASSWORD_RESET", "", carla, 403, "the template TEST"},
	} {
		check.Contains(t, w.wants(c.status, c.method, c.path, c.body, c.key...), c.want)
	}

	// What users do, however much and for however long, pushes out no record that an application deleted one.
	w.wants(http.StatusNoContent, http.MethodDelete, path, "", app...)
	record := []byte(`{"target":"` + strings.Repeat("x", 1200) + `"}`)
	for range 15_000 { // as a year of users with long ids leaves them
		check.OK(t, check.Err(p.js.PublishAsync("audit.notifier.users.test", record, jetstream.WithStallWait(patience))))
	}
	<-p.js.PublishAsyncComplete()
	stream := check.Must(p.js.Stream(t.Context(), contracts.StreamAuditUsers))(t)
	check.OK(t, check.Err(stream.GetLastMsgForSubject(t.Context(), "audit.notifier.users.forget")))
}
