package recipient_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

const minimalEvent = `{"event_id":"e","event_type":"X","aggregate_type":"Y"`

func pathsOf(err error) []string {
	invalid, ok := errors.AsType[*contracts.ValidationError](err)
	if !ok {
		return nil
	}
	var paths []string
	for _, f := range invalid.Fields {
		paths = append(paths, f.Path)
	}
	return paths
}

func TestEventKeepsTheRestaurantAsItCame(t *testing.T) {
	t.Parallel()
	for raw, ok := range map[string]bool{
		`5`: true, `"5"`: true, `-1`: true, `9007199254740993`: true, `"r/5"`: true, `null`: true,
		`5.0`: false, `1e3`: false, `""`: false, `[]`: false, `{}`: false, `true`: false, `99999999999999999999`: false, `"\udc00"`: false,
		`"` + strings.Repeat("x", contracts.MaxID+1) + `"`: false,
	} {
		event, err := contracts.Decode[recipient.Event]([]byte(minimalEvent + `,"restaurant_id":` + raw + `}`))
		check.That(t, (err == nil) == ok, "%s: %v", raw, err)
		check.That(t, ok || slices.Equal(pathsOf(err), []string{"/restaurant_id"}), "%s: %v", raw, err)
		check.That(t, !ok || string(event.RestaurantID) == raw, "%s became %s", raw, event.RestaurantID)
	}
}

func TestEventNamesEveryField(t *testing.T) {
	t.Parallel()
	long, never := strings.Repeat("x", contracts.MaxText+1), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	twice := json.RawMessage(`{"a":1,"a":2}`)
	err := recipient.Event{
		AggregateID: long, RecipientType: "a b", RestaurantID: json.RawMessage(`1.5`), UserID: long, OccurredAt: never, Payload: twice,
		Recipients: []contracts.Recipient{{UserID: "u"}}, Route: twice,
	}.Validate()
	check.Equal(t, []string{
		"/event_id", "/event_type", "/aggregate_type", "/aggregate_id", "/recipientType", "/restaurant_id", "/user_id", "/occurred_at",
		"/payload/a", "/route/a", "/recipients/0/recipient_type",
	}, pathsOf(err))
	for body, want := range map[string]string{
		`,"recipientType":"A B"}`:                                  "/recipientType",
		`,"recipientType":5}`:                                      "/recipientType",
		`,"recipientType":"A","recipientType":"B"}`:                "/recipientType",
		`,"recipients":{}}`:                                        "/recipients",
		`,"recipients":[{"user_id":"u"}]}`:                         "/recipients/0/recipient_type",
		`,"recipients":[[]]}`:                                      "/recipients/0",
		`,"recipients":[` + strings.Repeat("{},", 10_000) + `{}]}`: "/recipients",
		`,"route":{"channels":[]}}`:                                "/recipients",
		`,"route":null}`:                                           "/recipients",
		`,"route":{"a":1,"a":2}}`:                                  "/route/a",
	} {
		_, err := contracts.Decode[recipient.Event]([]byte(minimalEvent + body))
		check.That(t, slices.Contains(pathsOf(err), want), "%.80s: %v, want a problem at %s", body, err, want)
		generic, err := contracts.Decode[contracts.Event]([]byte(minimalEvent + body))
		if err == nil { // what this refuses, too, is no event for anybody
			_, err = recipient.Of(generic)
			check.That(t, slices.Contains(pathsOf(err), want), "%.80s: Of: %v, want a problem at %s", body, err, want)
			check.ErrorIs(t, check.Err(recipient.PublisherConfig().Subject(generic)), contracts.ErrInvalid)
		}
	}
}

// The schema describes what the notifier reads, member for member.
func TestSchemaDescribesTheEvent(t *testing.T) {
	t.Parallel()
	raw := check.Must(contracts.Schema("event"))(t)
	var described struct {
		ID         string                     `json:"$id"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	check.OK(t, json.Unmarshal(raw, &described))
	full := recipient.Event{
		EventID: "e", EventType: "X", AggregateType: "Y", AggregateID: "a", RecipientType: "CUSTOMER", RestaurantID: []byte("5"), UserID: "u",
		OccurredAt: time.Unix(1, 0), NotBefore: time.Unix(2, 0), Payload: []byte("1"), Route: []byte("{}"),
		Recipients: []contracts.Recipient{{UserID: "u", RecipientType: "CUSTOMER"}},
	}
	var written map[string]json.RawMessage
	check.OK(t, json.Unmarshal(check.Must(contracts.Encode(full))(t), &written))
	for name := range described.Properties {
		check.That(t, written[name] != nil, "%s is described, and not read", name)
	}
	check.Equal(t, len(written), len(described.Properties), "members")

	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	check.OK(t, compiler.AddResource(described.ID, check.Must(jsonschema.UnmarshalJSON(bytes.NewReader(raw)))(t)))
	schema := check.Must(compiler.Compile(described.ID))(t)
	for body, good := range map[string]bool{
		`}`: true, `,"restaurant_id":"5"}`: true, `,"restaurant_id":null}`: true, `,"restaurant_id":1.5}`: false, `,"restaurant_id":{}}`: false,
		`,"recipientType":"A B"}`: false, `,"user_id":5}`: false, `,"recipients":[{}]}`: false,
	} {
		_, err := contracts.Decode[recipient.Event]([]byte(minimalEvent + body))
		said := schema.Validate(check.Must(jsonschema.UnmarshalJSON(strings.NewReader(minimalEvent + body)))(t))
		check.That(t, (err == nil) == good && (said == nil) == good, "%s: the schema says %v, Decode says %v", body, said, err)
	}
}

// An event that is published, relayed from an outbox or wrapped in a CloudEvent is read as the one that its source wrote.
func TestEventIsTheSameByAllWays(t *testing.T) {
	t.Parallel()
	files := check.Must(filepath.Glob("../../../pkg/contracts/testdata/event/v1/*.json"))(t)
	check.Require(t, len(files) > 3, "no samples")
	bodies := []string{
		minimalEvent + `,"recipientType":null,"recipients":null,"restaurant_id":null,"user_id":null}`,
		minimalEvent + `,"recipientType":"","recipients":[],"unknown":{"a":"\ud83d"},"Route":1,"payload":{"half":"\udc00","n":1.0}}`,
		minimalEvent + `,"restaurant_id":"<\u05d0>","recipients":[{"user_id":"a","recipient_type":"B","locale":"","odd":1}],"route":{"b":1,"a":[2.0]}}`,
	}
	for _, file := range files {
		bodies = append(bodies, string(check.Must(os.ReadFile(file))(t)))
	}
	config := recipient.PublisherConfig()
	for _, body := range bodies {
		want := check.Must(contracts.Decode[recipient.Event]([]byte(body)))(t)
		written := string(check.Must(contracts.Encode(want))(t))
		mark := check.Must(want.Fingerprint())(t)
		generic := check.Must(contracts.Decode[contracts.Event]([]byte(body)))(t)
		message := check.Must(want.Message())(t)
		for way, m := range map[string]contracts.Event{"with all members": generic, "with those that are read": message} {
			check.Equal(t, string(check.Must(contracts.Encode(check.Must(recipient.Of(m))(t)))(t)), written, way)
			msg := check.Must(m.Msg("/source"))(t)
			check.Equal(t, check.Must(config.Fingerprint(msg.Data))(t), mark, way)
			check.Equal(t, check.Must(config.Subject(m))(t), check.Must(want.Subject())(t), way)
			read := check.Must(contracts.Decode[recipient.Event](msg.Data))(t)
			check.Equal(t, string(check.Must(contracts.Encode(read))(t)), written, way)
		}
		var direct, through map[string]any
		check.OK(t, json.Unmarshal([]byte(written), &direct))
		check.OK(t, json.Unmarshal(check.Must(contracts.Encode(message))(t), &through))
		check.Equal(t, through, direct)
	}
	routed := recipient.Event{EventType: "b", AggregateType: "a", Route: []byte("{}")}
	check.Equal(t, check.Must(routed.Subject())(t), "events./routed.b", "subject")
}
