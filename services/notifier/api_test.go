package notifier

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func listening(c *Config) { c.Listen = "127.0.0.1:0" }

// web calls a notifier over HTTP.
type web struct {
	*testing.T

	base   string
	client *http.Client
}

func newWeb(t *testing.T, n *Notifier) *web {
	t.Helper()
	client := &http.Client{Transport: servicetest.Described(t, api.OpenAPI).Transport(t, &http.Transport{}), Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	return &web{T: t, base: n.URL(), client: client}
}

// call returns the status and the body of an answer.
func (w *web) call(method, path, body string, header ...string) (int, string) {
	w.Helper()
	resp := w.request(w.Context(), method, path, body, header...)
	defer resp.Body.Close()
	data := check.Must(io.ReadAll(resp.Body))(w)
	return resp.StatusCode, string(data)
}

// request makes a request with headers, which are names and values.
func (w *web) request(ctx context.Context, method, path, body string, header ...string) *http.Response {
	w.Helper()
	r := check.Must(http.NewRequestWithContext(ctx, method, w.base+path, strings.NewReader(body)))(w)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return check.Must(w.client.Do(r))(w)
}

// get reads an answer, which has to be one.
func get[T any](w *web, path string) (v T) {
	w.Helper()
	status, body := w.call(http.MethodGet, path, "")
	if err := json.Unmarshal([]byte(body), &v); err != nil || status != http.StatusOK {
		w.Fatalf("%s: %d %s", path, status, body)
	}
	return v
}

const reservation = `{"event_id":"evt-001","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT","restaurant_id":5,` +
	`"recipientType":"RESTAURANT_USER","payload":{"guests":4}}`

// An event that was told over HTTP is told once, and refused with another payload: also long after the stream has
// forgotten its id, and over NATS.
func TestEventsOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 3)...)
	n := p.start(&pigeon{}, listening)
	w := newWeb(t, n)
	if status, body := w.call(http.MethodPost, "/v1/events", reservation); status != 202 || body != `{"duplicate":false,"event_id":"evt-001","state":"seen"}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	p.settled(6)
	p.expanded(n, "evt-001")
	stream := check.Must(p.js.Stream(t.Context(), contracts.StreamEvents))(t)
	check.OK(t, stream.Purge(t.Context()))
	if status, body := w.call(http.MethodPost, "/v1/events", reservation); status != 200 || !strings.Contains(body, `"duplicate":true`) {
		t.Errorf("%d %s", status, body)
	}
	other := strings.Replace(reservation, "4", "5", 1)
	status, body := w.call(http.MethodPost, "/v1/events", other)
	check.That(t, status == 409 && strings.Contains(body, "EVENT_MISMATCH"), "%d %s", status, body)
	for request, want := range map[[2]string]string{
		{"publish", reservation}: `"duplicate":true`, {"publish", other}: "EVENT_MISMATCH", {"get", `{"event_id":"evt-001"}`}: `"planned":6`,
		{"list", `{"event_id":"evt-001","channel":"pigeon","state":"sent"}`}: `"state":"sent"`,
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
	check.That(t, len(seen) == 6, "%d rows: %v", len(seen), seen)
	check.Equal(t, len(p.rows()), 6, "rows are stored")
	// An id that is a step of a path for clients and proxies.
	status, body = w.call(http.MethodPost, "/v1/events", strings.Replace(reservation, "evt-001", ".", 1))
	check.That(t, status == 202, "%d %s", status, body)
	p.settled(12)
	for _, path := range []string{"/v1/events?event=.", "/v1/events/%2E"} {
		dot := get[answer](w, path)
		check.That(t, dot.EventID == "." && len(dot.Notifications) == 6, "%s: %+v", path, dot)
	}
	gone := w.cancel("/v1/events?event=.")
	check.That(t, gone.EventID == "." && gone.Sent == 6, "%+v", gone)
}

// Any CloudEvent is an event, in binary mode; its sender says which users it is about.
func TestCloudEventsOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	w := newWeb(t, p.start(&pigeon{}, listening))
	binary := []string{
		"Ce-Specversion", "1.0", "Ce-Id", "7", "Ce-Source", "/crm", "Ce-Type", "RESERVATION_REQUESTED", "Ce-Userid", "ada",
		"Ce-Recipienttype", "CUSTOMER", "Ce-Aggregatetype", "TABLE", "Content-Type", "application/json",
	}
	status, body := w.call(http.MethodPost, "/v1/events", `{"seats":2}`, binary...)
	check.That(t, status == 202 && strings.Contains(body, `"/crm|7"`), "%d %s", status, body)
	structured := `{"specversion":"1.0","id":"7","source":"/crm","type":"RESERVATION_REQUESTED","userid":"ada","recipienttype":"CUSTOMER",` +
		`"aggregatetype":"TABLE","data":{"seats":2}}`
	status, body = w.call(http.MethodPost, "/v1/events", structured, "Content-Type", "application/cloudevents+json")
	check.That(t, status == 400, "structured mode: %d %s", status, body)
	status, _ = w.call(http.MethodPost, "/v1/events", `{"seats":3}`, binary...)
	check.That(t, status == 409, "another payload: %d", status)
	p.settled(1)
	page := get[inapp.Page](w, "/v1/users/ada/inbox")
	check.That(t, len(page.Items) == 1 && string(page.Items[0].Payload) == `{"seats":2}` && page.Items[0].EventID == "/crm|7" && page.Counts.Unread == 1,
		"%+v", page)
	for at, want := range map[string]int{
		"tomorrow": http.StatusBadRequest, time.Now().Add(rules.MaxDelay + time.Hour).Format(time.RFC3339): http.StatusUnprocessableEntity,
		time.Now().Add(time.Hour).Format(time.RFC3339): http.StatusAccepted,
	} {
		status, body = w.call(http.MethodPost, "/v1/events", `{"seats":2}`, slices.Concat(binary, []string{"Ce-Notbefore", at, "Ce-Id", "8"})...)
		check.That(t, status == want, "not before %s: %d %s", at, status, body)
	}
	p.until("the row waits", func() bool {
		for _, d := range p.deliveries() {
			if d.Reason == deliveries.ReasonNotBefore {
				return true
			}
		}
		return false
	})
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	w := newWeb(t, p.start(&pigeon{}, listening))
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
		{"GET", "/v1/events/..%2F%3E*%00", "", 404, "no such event"},
		{"GET", "/v1/events/" + long, "", 404, "no such event"},
		{"GET", "/v1/notifications?channel=*", "", 400, "?channel"},
		{"GET", "/v1/notifications?state=lost", "", 400, "?state"},
		{"GET", "/v1/notifications?limit=0", "", 400, "?limit"},
		{"GET", "/v1/notifications?limit=x&since=y", "", 400, "?since"},
		{"GET", "/v1/notifications?chanel=a", "", 400, "?chanel"},
		{"POST", "/v1/notifications/replay?evnt=e", "", 400, "?evnt"},
		{"DELETE", "/v1/events/e?usr=a", "", 400, "?usr"},
		{"GET", "/v1/notifications?cursor=%21", "", 400, "?cursor"},
		{"GET", "/v1/users/" + long + "/inbox", "", 400, "user"},
		{"GET", "/v1/users/a/inbox?type=*", "", 400, "?type"},
		{"GET", "/v1/users/a/inbox?state=unread,seen", "", 400, "?state"},
		{"GET", "/v1/users/a/inbox?cursor=xx", "", 400, "?cursor"},
		{"PATCH", "/v1/users/a/inbox/e", `{}`, 400, "/state"},
		{"PATCH", "/v1/users/a/inbox/e", `{"state":"read"}`, 404, "no such item"},
		{"PATCH", "/v1/users/a/inbox/e?type=ADMIN", `{"state":"read"}`, 404, "no such item"},
		{"POST", "/v1/users/a/inbox", `read`, 400, "JSON"},
		{"POST", "/v1/users/a/inbox", `{"state":"read","events":["e"` + strings.Repeat(`,"e"`, 1000) + `]}`, 400, "/events"},
		{"PUT", "/v1/events", "", 405, "POST"},
		{"DELETE", "/v1/events", "", 400, "?event"},
		{"DELETE", "/v1/events/" + long, "", 404, "no such event"},
		{"DELETE", "/v1/events/digest:c:2000-01-01T00:15:00Z", "", 404, "no such event"},
		{"DELETE", "/v1/events/none?user=a", "", 400, "?user"},
		{"DELETE", "/v1/events/none?type=CUSTOMER", "", 400, "?user"},
		{"DELETE", "/v1/events/none?user=a&type=*", "", 400, "?type"},
		{"DELETE", "/v1/events/none?cursor=%21", "", 400, "?cursor"},
		{"GET", list + "?state=healthy", "", 400, "?state"},
		{"GET", list + "?state=*", "", 400, "?state"},
		{"GET", list + "?channel=*", "", 400, "?channel"},
		{"GET", list + "?channel=a.b", "", 400, "?channel"},
		{"GET", list + "?channel=%00&state=x", "", 400, "?channel"},
		{"GET", list + "?channel=" + strings.Repeat("a", 400), "", 400, "?channel"},
		{"GET", list + "?limit=1001", "", 400, "?limit"},
		{"GET", list + "?limit=0", "", 400, "?limit"},
		{"GET", list + "?limit=many", "", 400, "?limit"},
		{"GET", list + "?cursor=%21", "", 400, "?cursor"},
		{"POST", list, "", 405, "method"},
		{"GET", enable, "", 405, "method"},
		{"POST", enable, "{}", 400, "/channel"},
		{"POST", enable, "", 400, "JSON"},
		{"POST", enable, `{"channel":1,"id":"a"}`, 400, "/channel"},
		{"POST", enable, `{"channel":"pigeon","id":"*"}`, 400, "/id"},
		{"POST", enable, `{"channel":"pig.eon","id":"a"}`, 400, "/channel"},
		{"POST", enable, `{"channel":"pigeon","id":"` + strings.Repeat("a", 5000) + `"}`, 413, "limit"},
		{"POST", enable, `{"channel":"pigeon","id":"0f"}`, 404, "pigeon"},
	} {
		if status, body := w.call(c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.text) || !strings.Contains(body, `"type":"about:blank"`) {
			t.Errorf("%s %.60s %.60s: %d %.300s, want %d with %s", c.method, c.path, c.body, status, body, c.status, c.text)
		}
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
	check.Equal(t, len(p.rows()), 0, "result")
}

func TestNotifierIsWatched(t *testing.T) {
	t.Parallel()
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "notifier"}))(t)
	p := newPlace(t, natstest.Server(t))
	w := newWeb(t, p.start(&pigeon{}, listening, func(c *Config) { c.Exports, c.Version = exports, "1.2.3" }))
	status, body := w.call(http.MethodPost, "/v1/events", strings.Replace(reservation, "RESTAURANT_USER", "CUSTOMER", 1))
	check.Require(t, status == 202, "%d %s", status, body)
	p.until("ready", func() bool { status, _ := w.call(http.MethodGet, "/readyz", ""); return status == http.StatusOK })
	_, ready := w.call(http.MethodGet, "/readyz?verbose", "")
	for _, want := range []string{"[+]nats ok", "[+]store ok", "[+]notifier ok", "[+]notifier-expand ok", "[+]notifier-send-inapp ok", "[+]notifier-send-pigeon ok"} {
		check.Contains(t, ready, want)
	}
	_, version := w.call(http.MethodGet, "/version", "")
	check.That(t, version == "1.2.3\n", "version %s", version)
	p.directory(contracts.Recipient{RecipientType: "RESTAURANT_USER", UserID: "a"})
	status, body = w.call(http.MethodPost, "/v1/events", strings.Replace(reservation, "evt-001", "evt-002", 1))
	check.Require(t, status == 202, "%d %s", status, body)
	p.until("metrics", func() bool {
		_, metrics := w.call(http.MethodGet, "/metrics", "")
		for _, want := range []string{
			`worker_job_attempts_total{consumer="notifier"`, `notifier_events_total{outcome="planned"} 1`,
			`notifier_events_total{outcome="refused"} 1`,
			`notifier_notifications_total{channel="pigeon",reason="",state="sent"} 1`, `remote_call_duration_seconds_count{outcome="ok",remote="pigeon"} 1`,
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
	p := newPlace(t, natstest.Server(t))
	instances := []*Notifier{p.start(&pigeon{}), p.start(&pigeon{})}
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
