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
	got := check.Must(contracts.ParseCloudEvent(msg.Header, msg.Data))(t)
	check.Equal(t, got, event)
}

func TestCloudEventReadsLeniently(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ key, raw, want string }{
		"other case":           {"Ce-Subject", "x", "x"},
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
			event, err := contracts.ParseCloudEvent(header, nil)
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
		"surrogate":          {nats.Header{"ce-subject": {"%ED%A0%80"}}, "/subject"},
		"raw invalid":        {nats.Header{"ce-subject": {"\xff"}}, "/subject"},
		"half a percent":     {nats.Header{"ce-subject": {"100%"}}, "/subject"},
		"sign for a digit":   {nats.Header{"ce-subject": {"%+1"}}, "/subject"},
		"open quote":         {nats.Header{"ce-subject": {`"abc`}}, "/subject"},
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
		"structured":         {nats.Header{"Content-Type": {"Application/CloudEvents+JSON; charset=utf-8"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := contracts.ParseCloudEvent(test.header, []byte(`{}`))
			check.That(t, failsAt(err, test.path), "got %v, want a complaint about %q", err, test.path)
		})
	}
}

func TestCloudEventReportsAllAtOnce(t *testing.T) {
	t.Parallel()
	header := nats.Header{"ce-subject": {"%C0%A0"}, "ce-time": {"yesterday"}, "ce-my_ext": {"x"}}
	_, err := contracts.ParseCloudEvent(header, nil)
	got := paths(err)
	check.That(t, slices.Equal(got, []string{"/my_ext", "/subject", "/time"}), "got %v", err)
}

func TestPlainBodyIsAnEvent(t *testing.T) {
	t.Parallel()
	got := check.Must(contracts.ParseCloudEvent(nats.Header{"Content-Type": {"text/plain"}, "Nats-Msg-Id": {"claim-7"}}, []byte("x")))(t)
	check.Equal(t, got, contracts.CloudEvent{DataContentType: "text/plain", Data: []byte("x")})
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
	f.Add("ce-subject", "%E2%82%AC", "application/json", []byte(`{}`))
	f.Add("CE-My", `"a\"b"`, "text/plain", []byte("x"))
	f.Fuzz(func(t *testing.T, key, value, contentType string, data []byte) {
		header := nats.Header{key: {value}, "Content-Type": {contentType}, "ce-id": {"1"}, "ce-source": {"/"}, "ce-type": {"t"}}
		event, err := contracts.ParseCloudEvent(header, data)
		if err != nil || event.ID == "" {
			return
		}
		msg, err := event.Msg("events.a.b")
		check.Require(t, err == nil, "read but not written: %v", err)
		for name, values := range msg.Header {
			check.That(t, !strings.ContainsFunc(name+values[0], func(r rune) bool { return r <= ' ' || r > '~' }) || name == nats.MsgIdHdr,
				"header %q: %q", name, values)
		}
		again := check.Must(contracts.ParseCloudEvent(msg.Header, msg.Data))(t)
		check.Equal(t, again, event)
	})
}
