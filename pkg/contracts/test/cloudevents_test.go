package test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestStructuredModeAgreesWithTheSDK: what the reference implementation writes is read with the same meaning.
func TestStructuredModeAgreesWithTheSDK(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*event.Event) error{
		"json": func(e *event.Event) error {
			return e.SetData("application/json", map[string]any{"a": 1, "b": "מסעדה"})
		},
		"binary": func(e *event.Event) error { return e.SetData("application/octet-stream", []byte{0, 1, 0xff}) },
		"text":   func(e *event.Event) error { return e.SetData("text/plain", []byte("a\nb \"c\"")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := event.New()
			want.SetID("evt-001")
			want.SetSource("/reservations/תל-אביב")
			want.SetType("com.example.reservation.requested.v1")
			want.SetSubject(`50% "off" €`)
			want.SetTime(time.Date(2026, 2, 3, 14, 0, 0, 5000, time.FixedZone("", 7200)))
			want.SetDataSchema("https://example.com/schema.json")
			want.SetExtension("tenant", "a b")
			want.SetExtension("count", 5)
			want.SetExtension("live", true)
			check.OK(t, set(&want))
			body, err := json.Marshal(want)
			check.OK(t, err)
			got, err := contracts.ParseCloudEvent("events.a.b", nats.Header{"Content-Type": {event.ApplicationCloudEventsJSON}}, body)
			check.OK(t, err)
			sameEvent(t, want, got)
		})
	}
}

// TestBinaryModeAgreesWithTheSDK: what is written in binary mode is, read by the rules of the reference
// implementation's type, a valid event with the same attributes.
func TestBinaryModeAgreesWithTheSDK(t *testing.T) {
	t.Parallel()
	written := contracts.CloudEvent{
		ID: "evt-001", Source: "/reservations", Type: "com.example.x.v1", Subject: "מסעדה 50%", DataSchema: "https://example.com/s.json",
		DataContentType: "application/json", Time: time.Date(2026, 2, 3, 12, 0, 0, 1, time.UTC),
		Extensions: map[string]string{"tenant": "t"}, Data: []byte(`{"a":1}`),
	}
	msg, err := written.Msg("events.a.b")
	check.OK(t, err)
	read, err := contracts.ParseCloudEvent(msg.Subject, msg.Header, msg.Data)
	check.OK(t, err)
	want := event.New(msg.Header["ce-specversion"][0])
	want.SetID(msg.Header["ce-id"][0])
	want.SetSource(msg.Header["ce-source"][0])
	want.SetType(msg.Header["ce-type"][0])
	want.SetSubject(written.Subject)
	want.SetDataSchema(msg.Header["ce-dataschema"][0])
	want.SetExtension("tenant", msg.Header["ce-tenant"][0])
	parsed, err := time.Parse(time.RFC3339Nano, msg.Header["ce-time"][0])
	check.OK(t, err)
	want.SetTime(parsed)
	check.OK(t, want.SetData(msg.Header["ce-datacontenttype"][0], msg.Data))
	sameEvent(t, want, read)
}

// TestValidationAgreesWithTheSDK: both refuse the same events.
func TestValidationAgreesWithTheSDK(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*contracts.CloudEvent){
		"good":            func(*contracts.CloudEvent) {},
		"no id":           func(e *contracts.CloudEvent) { e.ID = "" },
		"no source":       func(e *contracts.CloudEvent) { e.Source = "" },
		"no type":         func(e *contracts.CloudEvent) { e.Type = "" },
		"relative schema": func(e *contracts.CloudEvent) { e.DataSchema = "schema.json" },
		"source no URI":   func(e *contracts.CloudEvent) { e.Source = "%zz" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours := contracts.CloudEvent{ID: "1", Source: "/s", Type: "t", DataSchema: "https://example.com/s"}
			change(&ours)
			theirs := event.New()
			theirs.SetID(ours.ID)
			theirs.SetSource(ours.Source)
			theirs.SetType(ours.Type)
			theirs.SetDataSchema(ours.DataSchema)
			if (theirs.Validate() == nil) != (ours.Validate() == nil) {
				t.Errorf("theirs: %v, ours: %v", theirs.Validate(), ours.Validate())
			}
		})
	}
}

func sameEvent(t *testing.T, want event.Event, got contracts.CloudEvent) {
	t.Helper()
	check.OK(t, want.Validate())
	for name, pair := range map[string][2]string{
		"id":              {want.ID(), got.ID},
		"source":          {want.Source(), got.Source},
		"type":            {want.Type(), got.Type},
		"subject":         {want.Subject(), got.Subject},
		"datacontenttype": {want.DataContentType(), got.DataContentType},
		"dataschema":      {want.DataSchema(), got.DataSchema},
		"time":            {want.Time().UTC().String(), got.Time.String()},
		"data":            {string(want.Data()), string(got.Data)},
	} {
		check.Same(t, name, pair[0], pair[1])
	}
	for name, value := range want.Extensions() {
		text, err := json.Marshal(value)
		if s, ok := value.(string); ok {
			text = []byte(s)
		}
		check.That(t, err == nil && got.Extensions[name] == string(text), "extension %s: want %s, got %q", name, text, got.Extensions[name])
	}
	check.That(t, len(want.Extensions()) == len(got.Extensions) && len(got.Assumed) == 0,
		"extensions %v, assumed %v", got.Extensions, got.Assumed)
}
