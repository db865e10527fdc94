package notifier

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// hopeless are messages that no plan can be made of: the fields of an event, or the headers and the data of a CloudEvent.
var hopeless = []struct {
	name   string
	header []string
	body   string
}{
	{name: "half a character in an id", body: `"user_id":"a\ud83d"`},
	{name: "half a character in a name", body: `"recipients":[{"user_id":"\udc00","recipient_type":"CUSTOMER"}]`},
	{name: "names that differ in half characters", body: `"payload":{"\ud83d":1,"\ud83e":2}`},
	{name: "bytes that are no text", body: "\"payload\":\"\xed\xa0\xbd\""},
	{name: "a name twice", body: `"payload":{"a":1,"a":2}`},
	{name: "too deep", body: `"payload":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000)},
	{name: "a day too far", body: `"not_before":"9999-12-31T23:59:59Z"`},
	{name: "a year too far", body: `"not_before":"9999-12-31T23:59:59-01:00"`},
	{name: "an offset of a day", body: `"not_before":"2026-01-02T15:04:05+24:00"`},
	{name: "a large payload", body: `"payload":"` + strings.Repeat("x", 900<<10) + `"`},
	{name: "half a character in an address", body: `"recipients":[{"user_id":"a","recipient_type":"CUSTOMER","addresses":{"email":"a\ud83d@b.example"}}]`},
	{name: "no zone", body: `"recipients":[{"user_id":"a","recipient_type":"CUSTOMER","time_zone":"Mars/Olympus"}]`},
	{name: "its own route", body: `"route":{"channels":["inapp"]},"recipients":[{"user_id":"a","recipient_type":"CUSTOMER"}]`},
	{name: "an id of another form", body: `"restaurant_id":1.5`},
	{name: "an offset of a day in an attribute", header: []string{"ce-notbefore", "2026-01-02T15:04:05+24:00"}, body: `{}`},
	{name: "an offset of more than a day in an attribute", header: []string{"ce-notbefore", "2026-01-02T15:04:05-24:59"}, body: `{}`},
	{name: "a year too far in an attribute", header: []string{"ce-notbefore", "9999-12-31T23:59:59-01:00"}, body: `{}`},
	{name: "half a character in a user", header: []string{"ce-userid", "%ED%A0%BD"}, body: `{}`},
	{name: "a kind with a space", header: []string{"ce-recipienttype", "A%20B"}, body: `{}`},
	{name: "data with a name twice", body: `{"a":1,"a":2}`, header: []string{"ce-x", "y"}},
	{name: "data with bytes that are no text", body: "{\"a\":\"\xff\"}", header: []string{"ce-x", "y"}},
	{name: "data too deep", body: strings.Repeat("[", 1000) + strings.Repeat("]", 1000), header: []string{"ce-x", "y"}},
	{name: "data too large as base64", body: strings.Repeat("x", 700<<10), header: []string{"ce-x", "y"}},
}

// TestEventsThatCannotBePlanned sends each message over HTTP and NATS, bare and as a CloudEvent: it is refused, or a dead letter at
// once. No job is left, and events with halves of characters in their payloads are planned.
func TestEventsThatCannotBePlanned(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 2)...)
	n := p.start(&pigeon{}, listening)
	w := newWeb(t, n)
	const kind = "FOR_ALL"
	damaged := check.Must(keys.Event("damaged"))(t)
	check.OK(t, check.Err(p.js.Publish(t.Context(), "$KV."+contracts.BucketDeliveries+"."+damaged, []byte("{"))))
	p.publish(event("damaged", kind)) // its record cannot be read, nor written
	sent := 1
	for i, c := range hopeless {
		cloud := append([]string{"ce-specversion", "1.0", "ce-id", strconv.Itoa(i), "ce-source", "/s", "ce-type", kind}, c.header...)
		ways, body := [][]string{cloud}, c.body
		if c.header == nil {
			ways = [][]string{cloud, nil}
			body = fmt.Sprintf(`{"event_id":"%d","event_type":%q,"aggregate_type":"RESTAURANT","aggregate_id":"5",%s}`, i, kind, body)
		}
		for _, header := range ways {
			status, answer := w.call(http.MethodPost, "/v1/events", body, header...)
			check.That(t, status >= 400 && status < 500, "%s: %d %.300s", c.name, status, answer)
			msg := nats.NewMsg("events.RESTAURANT." + kind)
			msg.Data = []byte(body)
			for k := 0; k < len(header); k += 2 {
				msg.Header[header[k]] = header[k+1 : k+2]
			}
			check.OK(t, check.Err(p.js.PublishMsg(t.Context(), msg)))
			sent++
		}
	}
	for i, payload := range []string{`"a\ud83d"`, `{"\udc00":"\ud83dx"}`, `"\ude00\ud83d"`} { // JavaScript cuts characters in half
		id := fmt.Sprint("good", i)
		e := event(id, kind, func(e *recipient.Event) { e.Payload = json.RawMessage(payload) })
		status, answer := w.call(http.MethodPost, "/v1/events", string(check.Must(contracts.Encode(e))(t)))
		check.That(t, status == http.StatusAccepted, "%s: %d %s", payload, status, answer)
		p.expanded(n, id)
		p.publish(event(id+"-too", kind, func(e *recipient.Event) { e.Payload = json.RawMessage(payload) }))
		p.expanded(n, id+"-too")
	}
	p.until("all are dead letters", func() bool { return len(p.letters()) == sent })
	consumer := check.Must(p.js.Consumer(t.Context(), contracts.StreamEvents, eventsConsumer))(t)
	p.until("no job is left", func() bool {
		info, err := consumer.Info(t.Context())
		return err == nil && info.NumPending == 0 && info.NumAckPending == 0
	})
}
