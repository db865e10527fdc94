package contracts_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func fullEvent() contracts.CloudEvent {
	return contracts.CloudEvent{
		ID: "evt-001", Source: "/reservations/tel aviv", Type: "com.example.reservation.requested.v1",
		Subject: "מסעדה \"50%\" €", Time: time.Date(2026, 2, 3, 12, 0, 0, 123456789, time.UTC),
		DataContentType: "application/json", DataSchema: "https://example.com/schema.json",
		Extensions: map[string]string{"tenant": "a b", "traceparent": "00-x"}, Data: []byte(`{"a": 1}`),
	}
}

func TestCloudEventBinaryRoundTrip(t *testing.T) {
	t.Parallel()
	event := fullEvent()
	msg := check.Must(event.Msg("events.RESTAURANT.RESERVATION_REQUESTED"))(t)
	for name, want := range map[string]string{
		"ce-specversion": "1.0",
		"ce-time":        "2026-02-03T12:00:00.123456789Z",
		"ce-subject":     "%D7%9E%D7%A1%D7%A2%D7%93%D7%94%20%2250%25%22%20%E2%82%AC",
		"ce-source":      "/reservations/tel%20aviv",
		"ce-tenant":      "a%20b",
		"Nats-Msg-Id":    msg.Header.Get("Nats-Msg-Id"),
	} {
		got := msg.Header[name]
		check.That(t, slices.Equal(got, []string{want}), "%s: got %q, want %q", name, got, want)
	}
	got := check.Must(contracts.ParseCloudEvent(msg.Subject, msg.Header, msg.Data))(t)
	check.Equal(t, event, got)
}

func TestCloudEventSpecExample(t *testing.T) {
	t.Parallel()
	header := check.Must(contracts.CloudEvent{ID: "1", Source: "/", Type: "t", Subject: "Euro € 😀"}.Header())(t)
	check.Same(t, "ce-subject", header["ce-subject"][0], "Euro%20%E2%82%AC%20%F0%9F%98%80")
}

func TestCloudEventReadsLeniently(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ key, raw, want string }{
		"other case":           {"Ce-Subject", "x", "x"},
		"upper case":           {"CE-SUBJECT", "x", "x"},
		"quoted":               {"ce-subject", `"a \"b\" \\ c"`, `a "b" \ c`},
		"quoted and encoded":   {"ce-subject", `"a%20b"`, "a b"},
		"lower-case digits":    {"ce-subject", "%e2%82%ac", "€"},
		"needlessly encoded":   {"ce-subject", "%41%42", "AB"},
		"not encoded at all":   {"ce-subject", "é €", "é €"},
		"decoded only once":    {"ce-subject", "%2541", "%41"},
		"white space trimmed":  {"ce-subject", " x\t", "x"},
		"empty":                {"ce-subject", "", ""},
		"single quote is text": {"ce-subject", `5'`, "5'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := nats.Header{"ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}, test.key: {test.raw}}
			event, err := contracts.ParseCloudEvent("x", header, nil)
			check.That(t, err == nil && event.Subject == test.want, "got %q, %v, want %q", event.Subject, err, test.want)
		})
	}
}

func TestCloudEventRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		header nats.Header
		path   string
	}{
		"overlong space":     {nats.Header{"ce-subject": {"%C0%A0"}}, "/subject"},
		"overlong slash":     {nats.Header{"ce-subject": {"%E0%80%AF"}}, "/subject"},
		"surrogate":          {nats.Header{"ce-subject": {"%ED%A0%80"}}, "/subject"},
		"lone continuation":  {nats.Header{"ce-subject": {"%80"}}, "/subject"},
		"raw invalid":        {nats.Header{"ce-subject": {"\xff"}}, "/subject"},
		"half a percent":     {nats.Header{"ce-subject": {"100%"}}, "/subject"},
		"no digits":          {nats.Header{"ce-subject": {"%zz"}}, "/subject"},
		"sign for a digit":   {nats.Header{"ce-subject": {"%+1"}}, "/subject"},
		"open quote":         {nats.Header{"ce-subject": {`"abc`}}, "/subject"},
		"open escape":        {nats.Header{"ce-subject": {`"abc\`}}, "/subject"},
		"text after quote":   {nats.Header{"ce-subject": {`"a" b`}}, "/subject"},
		"control character":  {nats.Header{"ce-subject": {"%0D%0Ax: y"}}, "/subject"},
		"twice":              {nats.Header{"ce-subject": {"a", "a"}}, "/subject"},
		"twice in two cases": {nats.Header{"ce-subject": {"a"}, "CE-Subject": {"b"}}, "/subject"},
		"version":            {nats.Header{"ce-specversion": {"0.3"}}, "/specversion"},
		"time":               {nats.Header{"ce-time": {"yesterday"}}, "/time"},
		"empty id":           {nats.Header{"ce-type": {""}}, "/type"},
		"attribute name":     {nats.Header{"ce-my_ext": {"x"}}, "/my_ext"},
		"attribute data":     {nats.Header{"ce-data": {"x"}}, "/data"},
		"schema":             {nats.Header{"ce-dataschema": {"relative"}}, "/dataschema"},
		"too long":           {nats.Header{"ce-subject": {strings.Repeat("x", 10_000)}}, "/subject"},
		"batch":              {nats.Header{"Content-Type": {"application/cloudevents-batch+json"}}, ""},
		"avro":               {nats.Header{"Content-Type": {"application/cloudevents+avro"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := contracts.ParseCloudEvent("jobs.import.high.j", test.header, []byte(`{}`))
			check.That(t, failsAt(err, test.path), "got %v, want a complaint about %q", err, test.path)
		})
	}
}

func TestCloudEventReportsAllAtOnce(t *testing.T) {
	t.Parallel()
	header := nats.Header{"ce-subject": {"%C0%A0"}, "ce-time": {"yesterday"}, "ce-my_ext": {"x"}}
	_, err := contracts.ParseCloudEvent("events.a.b", header, nil)
	got := paths(err)
	check.That(t, slices.Equal(got, []string{"/my_ext", "/subject", "/time"}), "got %v", err)
}

func TestCloudEventFillsIn(t *testing.T) {
	t.Parallel()
	place := check.Must(contracts.EnrichJobSubject("wolt", "מסעדה"))(t)
	for name, test := range map[string]struct {
		subject string
		header  nats.Header
		want    contracts.CloudEvent
	}{
		"import job": {
			"jobs.import.normal.job1", nil,
			contracts.CloudEvent{ID: "job1", Source: "/jobs/import", Type: contracts.CloudEventImportRequested, Subject: "normal/job1", Assumed: []string{"id", "source", "specversion", "subject", "type"}},
		},
		"message id": {
			place,
			nats.Header{"nats-msg-id": {"claim-7"}},
			contracts.CloudEvent{ID: "claim-7", Source: "/jobs/enrich", Type: contracts.CloudEventEnrichRequested, Subject: "wolt/מסעדה", Assumed: []string{"id", "source", "specversion", "subject", "type"}},
		},
		"event without id": {
			"events.RESTAURANT.RESERVATION_REQUESTED",
			nats.Header{"ce-type": {"x"}, "ce-specversion": {"1.0"}},
			contracts.CloudEvent{Source: "/events", Type: "x", Subject: "RESTAURANT/RESERVATION_REQUESTED", Assumed: []string{"id", "source", "subject"}},
		},
		"source without subject": {
			"events.RESTAURANT.RESERVATION_REQUESTED",
			nats.Header{"ce-id": {"1"}, "ce-source": {"/s"}},
			contracts.CloudEvent{ID: "1", Source: "/s", Type: contracts.CloudEventDomain, Assumed: []string{"specversion", "type"}},
		},
		"content type": {
			"x.y",
			nats.Header{"ce-id": {"1"}, "Content-Type": {"text/plain"}},
			contracts.CloudEvent{ID: "1", Source: "/nats", Type: "x.y", DataContentType: "text/plain", Assumed: []string{"source", "specversion", "type"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := check.Must(contracts.ParseCloudEvent(test.subject, test.header, nil))(t)
			check.Equal(t, test.want, got)
		})
	}
}

func TestCloudEventStructured(t *testing.T) {
	t.Parallel()
	header := nats.Header{"content-type": {"Application/CloudEvents+JSON; charset=utf-8"}}
	envelope := `{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-02-03T14:00:00+02:00","n":5,"ok":true,"none":null`
	for name, test := range map[string]struct{ more, data string }{
		"json":          {`,"data":{"a": 1.0, "b":"\u00e9"}}`, `{"a": 1.0, "b":"\u00e9"}`},
		"json string":   {`,"data":"x"}`, `"x"`},
		"json null":     {`,"data":null}`, `null`},
		"text":          {`,"datacontenttype":"text/plain","data":"a\nb"}`, "a\nb"},
		"json type":     {`,"datacontenttype":"application/vnd.x+json","data":"x"}`, `"x"`},
		"base64":        {`,"data_base64":"AAEC/w=="}`, "\x00\x01\x02\xff"},
		"no data":       {`}`, ""},
		"base64, null":  {`,"data_base64":null}`, ""},
		"object as xml": {`,"datacontenttype":"application/xml","data":{"a":1}}`, `{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := check.Must(contracts.ParseCloudEvent("events.a.b", header, []byte(envelope+test.more)))(t)
			check.That(t, string(got.Data) == test.data, "data %q, want %q", got.Data, test.data)
			check.That(t, got.Extensions["n"] == "5" && got.Extensions["ok"] == "true" && len(got.Extensions) == 2 && got.Time.Hour() == 12,
				"got %+v", got)
		})
	}
	for name, body := range map[string]string{
		"":             `{"specversion":"1.0"`,
		"/id":          `{"specversion":"1.0","id":5,"source":"/s","type":"t"}`,
		"/data_base64": `{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1,"data_base64":"AA=="}`,
		"/x":           `{"specversion":"1.0","id":"1","source":"/s","type":"t","x":{}}`,
		"/y":           `{"specversion":"1.0","id":"1","source":"/s","type":"t","y":1.5}`,
		"/X":           `{"specversion":"1.0","id":"1","source":"/s","type":"t","X":"a"}`,
		"/type":        `{"specversion":"1.0","id":"1","source":"/s","type":"t","type":"u"}`,
	} {
		_, err := contracts.ParseCloudEvent("events.a.b", header, []byte(body))
		check.That(t, failsAt(err, name), "%s: got %v, want a complaint about %q", body, err, name)
	}
}

func TestCloudEventHeaderRefuses(t *testing.T) {
	t.Parallel()
	_, err := contracts.CloudEvent{
		Source: "/s\r\nNats-Rollup: all", Type: "t", Extensions: map[string]string{"a-b": "x", "id": "y"},
	}.Header()
	for _, path := range []string{"/id", "/source", "/a-b"} {
		check.That(t, failsAt(err, path), "got %v, want a complaint about %s", err, path)
	}
}

// FuzzCloudEvent: each message is refused, or can be written and read back as the same event.
func FuzzCloudEvent(f *testing.F) {
	f.Add("jobs.import.high.j", "ce-subject", "%E2%82%AC", "application/json", []byte(`{}`))
	f.Add("events.a.b", "CE-My", `"a\"b"`, "application/cloudevents+json", []byte(`{"specversion":"1.0","id":"1","source":"/","type":"t","data":1}`))
	f.Fuzz(func(t *testing.T, subject, key, value, contentType string, data []byte) {
		header := nats.Header{key: {value}, "Content-Type": {contentType}}
		event, err := contracts.ParseCloudEvent(subject, header, data)
		if err != nil || event.ID == "" {
			return
		}
		event.Assumed = nil
		msg, err := event.Msg("events.a.b")
		check.Require(t, err == nil, "read but not written: %v", err)
		for name, values := range msg.Header {
			check.That(t, !strings.ContainsFunc(name+values[0], func(r rune) bool { return r <= ' ' || r > '~' }) || name == nats.MsgIdHdr,
				"header %q: %q", name, values)
		}
		again := check.Must(contracts.ParseCloudEvent("events.a.b", msg.Header, msg.Data))(t)
		again.Assumed = nil
		check.Equal(t, event, again)
	})
}
