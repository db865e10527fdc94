package notifier

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/pkg/service/audit"
	"github.com/expediter-io/expediter/services/notifier/internal/natsapi"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// A test message comes at once, says that it is one, and is nobody's: no row, no link to switch anything off.
func TestATestMessage(t *testing.T) {
	t.Parallel()
	box := newLetterbox(t)
	folder := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(folder, "X"), 0o700))
	for part, text := range map[string]string{"subject": "hello {{.Payload.n}}", "txt": "{{.DateTime .Payload.at}} ({{.Unsubscribe}})"} {
		check.OK(t, os.WriteFile(filepath.Join(folder, "X", "default."+part), []byte(text), 0o600))
	}
	p := newPlace(t, natstest.Server(t)).watched()
	n := p.start(&pigeon{}, listening, func(c *Config) {
		c.Rules = writeRules(t, mailRules)
		c.ChannelConfig = ChannelConfig{
			EmailFrom: "n@example.com", EmailSecurity: "plain", EmailServer: box.address, LinkSecrets: []string{strings.Repeat("x", 32)},
			PublicURL: "https://n.example", Templates: folder,
		}
	})
	w := newWeb(t, n)
	const path = "/v1/templates/test"
	status, body := w.call(http.MethodPost, path, `{"template":"X","channel":"email","to":"ada@example.org","time_zone":"Europe/Rome","locale":"it",
		"payload":{"n":5,"at":"2026-11-25T22:05:00Z"}}`)
	var sent TestSent
	check.OK(t, json.Unmarshal([]byte(body), &sent))
	check.Require(t, status == http.StatusOK && sent.Problem == "" && strings.HasPrefix(sent.ID, "test_"), "%d %s", status, body)
	m := <-box.mails
	text := check.Must(io.ReadAll(m.Body))(t)
	check.Same(t, "subject", m.Header.Get("Subject"), "[test] hello 5")
	check.Same(t, "text", strings.TrimSpace(string(text)), "25/11/2026 23:05 ()")
	check.Same(t, "link", m.Header.Get("List-Unsubscribe"), "")

	status, body = w.call(http.MethodPost, path, `{"template":"Y","channel":"email","to":"ada@example.org"}`)
	check.That(t, status == http.StatusOK, "%d", status)
	check.Says(t, body, `"problem":"email: misconfigured: no text`)
	status, body = w.call(http.MethodPost, path, `{"channel":"inapp"}`)
	check.That(t, status == http.StatusBadRequest, "%d", status)
	check.Says(t, body, "/template", "/to", "/channel")
	status, _ = w.call(http.MethodPost, path, `[]`)
	check.That(t, status == http.StatusBadRequest, "%d", status)
	check.Same(t, "rows", len(p.rows())+len(p.deliveries()), 0)
}

// What an operator does is recorded under the name of the key, whatever the request says, and that of NATS without a name. The
// user is a pseudonym. Requests that are refused, or that only read, leave nothing.
func TestOperatorsLeaveRecords(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	keys := filepath.Join(t.TempDir(), "keys.json")
	operator, err := access.Add(keys, access.Key{Name: "olga", Scopes: []access.Scope{access.Operate, access.Read}})
	reader, readErr := access.Add(keys, access.Key{Name: "rita", Scopes: []access.Scope{access.Read}})
	check.OK(t, errors.Join(err, readErr))
	p.directory(users(contracts.RecipientRestaurantUser, 2)...)
	n := p.start(&pigeon{}, func(c *Config) { c.Keys, c.Listen = keys, "127.0.0.1:0" })
	w := newWeb(t, n)
	p.publish(event("evt-1", "RESERVATION_REQUESTED", func(e *contracts.Event) {
		e.RecipientType, e.NotBefore = contracts.RecipientRestaurantUser, time.Now().Add(time.Hour)
	}))
	p.until("rows wait", func() bool { return len(p.deliveries()) == 4 })
	user := users(contracts.RecipientRestaurantUser, 1)[0].UserID
	for _, c := range []struct {
		key, method, path, body string
		want                    int
	}{
		{reader, http.MethodDelete, "/v1/events/evt-1", "", http.StatusForbidden},
		{operator, http.MethodGet, "/v1/endpoints", "", http.StatusOK},
		{operator, http.MethodDelete, "/v1/events/evt-1?type=RESTAURANT_USER&user=" + user, "", http.StatusOK},
		{operator, http.MethodPost, "/v1/notifications/replay?state=failed", "", http.StatusOK},
		{operator, http.MethodPost, "/v1/endpoints/enable", `{"channel":"webhook","id":"0f"}`, http.StatusNotFound},
	} {
		header := []string{"Authorization", "Bearer " + c.key, "X-Actor", "mallory", "Nats-Request-Info", `{"user":"mallory"}`}
		status, answer := w.call(c.method, c.path, c.body, header...)
		check.That(t, status == c.want, "%s %s: %d %s", c.method, c.path, status, answer)
	}
	check.Is(t, check.Err(p.nc.Request("notifier.v1.cancel", []byte(`{"event_id":"evt-1","actor":"mallory"}`), patience)), nil)
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
		check.Same(t, "records[i]", records[i], want)
	}
}

// Without a place for the record nothing is cancelled, replayed or enabled, and the caller may ask again.
func TestNothingIsCancelledWithoutARecord(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	p.directory(users(contracts.RecipientRestaurantUser, 1)...)
	w := newWeb(t, p.start(&pigeon{}, func(c *Config) { c.Listen = "127.0.0.1:0" }))
	p.publish(event("evt-1", "RESERVATION_REQUESTED", func(e *contracts.Event) {
		e.RecipientType, e.NotBefore = contracts.RecipientRestaurantUser, time.Now().Add(time.Hour)
	}))
	p.until("rows wait", func() bool { return len(p.deliveries()) == 2 })
	check.OK(t, p.js.DeleteStream(t.Context(), contracts.StreamAudit))
	for path, method := range map[string]string{
		"/v1/events/evt-1": http.MethodDelete, "/v1/notifications/replay?state=failed": http.MethodPost, "/v1/endpoints/enable": http.MethodPost,
	} {
		status, answer := w.call(method, path, `{"channel":"webhook","id":"0f"}`)
		check.That(t, status == http.StatusServiceUnavailable && strings.Contains(answer, "STORE_UNAVAILABLE"), "%s: %d %s", path, status, answer)
	}
	for key, d := range p.deliveries() {
		check.That(t, !d.State.Ended(), "%s is %s", key, d.State)
	}
}

// text is a JSON text of as many bytes, with the quotes.
func text(size int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
}

// A payload is carried whole up to its limit, and refused by name beyond it, by whichever way it comes.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	p.directory(users(contracts.RecipientRestaurantUser, 1)...)
	birds := &pigeon{}
	w := newWeb(t, p.start(birds, listening))
	publisher := check.Must(contracts.NewPublisher(p.js, contracts.PublisherConfig{}))(t)
	// Each way in returns what it says against an event, "" when it has taken it.
	ways := map[string]func(e contracts.Event, body string) string{
		"http": func(_ contracts.Event, body string) string {
			status, answer := w.call(http.MethodPost, "/v1/events", body)
			if status == http.StatusAccepted {
				return ""
			}
			return http.StatusText(status) + answer
		},
		"micro": func(_ contracts.Event, body string) string {
			answer := check.Must(p.nc.RequestWithContext(t.Context(), natsapi.SubjectPublish, []byte(body)))(t)
			return answer.Header.Get("Nats-Service-Error-Code") + answer.Header.Get("Nats-Service-Error")
		},
		"publisher": func(e contracts.Event, _ string) string {
			check.Is(t, check.Err(publisher.Publish(t.Context(), e)), nil)
			return ""
		},
		"stream": func(e contracts.Event, _ string) string {
			p.publish(e)
			return ""
		},
	}
	const tooLarge = 1_000_000 // it fits into a message, but not into a plan
	for way, tell := range ways {
		for _, size := range []int{plan.MaxPayload, tooLarge} {
			e := event(way, "RESERVATION_REQUESTED", func(e *contracts.Event) {
				e.Payload, e.RecipientType = text(size), contracts.RecipientRestaurantUser
			})
			if size == tooLarge {
				e.EventID += "-too-large"
			}
			body := check.Must(contracts.Encode(e))(t)
			refused := tell(e, string(body))
			direct := way == "http" || way == "micro"
			if want := size == tooLarge && direct; (refused != "") != want || want && !strings.Contains(refused, "786432") {
				t.Errorf("%s with %d bytes: %.300q", way, size, refused)
			}
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
		if _, told := messages[way+"-too-large"]; told {
			t.Errorf("%s: what is too large was told", way)
		}
	}
	p.until("what is too large is a dead letter", func() bool { return len(p.letters()) == 2 })
	for _, letter := range p.letters() {
		check.That(t, strings.Contains(letter.Error, "786432") && letter.Stream == contracts.StreamEvents, "%+v", letter.Error)
	}
	// More than a message can hold never leaves its sender.
	huge := event("huge", "RESERVATION_REQUESTED", func(e *contracts.Event) { e.Payload = text(contracts.MaxBody) })
	check.Contains(t, check.Err(publisher.Publish(t.Context(), huge)), "1048576")
	body := check.Must(json.Marshal(huge))(t)
	status, answer := w.call(http.MethodPost, "/v1/events", string(body))
	check.That(t, status == http.StatusRequestEntityTooLarge, "%d %.300s", status, answer)
	if _, err := p.nc.RequestWithContext(t.Context(), natsapi.SubjectPublish, body); err != nats.ErrMaxPayload { //nolint:errorlint // as it is
		t.Errorf("%v", err)
	}
}
