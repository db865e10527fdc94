package notifier

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/natsapi"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// text is a JSON text of as many bytes, with the quotes.
func text(size int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
}

// A payload is carried whole up to its limit, and refused by name beyond it, by whichever way it comes.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users(contracts.RecipientRestaurantUser, 1)...)
	birds := &pigeon{}
	w := newWeb(t, p.start(birds, listening))
	publisher, err := contracts.NewPublisher(p.js, contracts.PublisherConfig{})
	check.OK(t, err)
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
			answer, err := p.nc.RequestWithContext(t.Context(), natsapi.SubjectPublish, []byte(body))
			check.OK(t, err)
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
			body, err := contracts.Encode(e)
			check.OK(t, err)
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
	body, err := json.Marshal(huge)
	check.OK(t, err)
	status, answer := w.call(http.MethodPost, "/v1/events", string(body))
	check.That(t, status == http.StatusRequestEntityTooLarge, "%d %.300s", status, answer)
	if _, err := p.nc.RequestWithContext(t.Context(), natsapi.SubjectPublish, body); err != nats.ErrMaxPayload { //nolint:errorlint // as it is
		t.Errorf("%v", err)
	}
}
