package contracts_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

const minimalEvent = `{"event_id":"e","event_type":"X","aggregate_type":"Y"`

// Members without a field are kept in Extra, and written next to the fields: the bytes of each value stay, but for white space.
func TestExtraIsWrittenAsItWasRead(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		minimalEvent + `}`: ``,
		minimalEvent + `,"b":1.0,"a":{ "z": 1, "y": [ 2 ] }}`:                `,"a":{"z":1,"y":[2]},"b":1.0`,
		minimalEvent + `,"n":null}`:                                          `,"n":null`,
		minimalEvent + `,"Event_ID":"f","Extra":{},"extra":[],"-":0}`:        `,"-":0,"Event_ID":"f","Extra":{},"extra":[]`,
		minimalEvent + `,"":1,"\u0061/~\"":"\u003c<\u2028&>"}`:               `,"":1,"a/~\"":"\u003c<\u2028&>"`,
		minimalEvent + `,"half":["\ud83d","\udc00"],"whole":"\ud83d\ude00"}`: `,"half":["\ud83d","\udc00"],"whole":"\ud83d\ude00"`,
		minimalEvent + `,"\ud83d":"half a name","nul":"\u0000"}`:             `,"nul":"\u0000","�":"half a name"`,
		minimalEvent + `,"big":12345678901234567890.10,"huge":1e400}`:        `,"big":12345678901234567890.10,"huge":1e400`,
		minimalEvent + `,"user_id":null,"payload":null,"x":""}`:              `,"payload":null,"x":""`,
	} {
		e := check.Must(contracts.Decode[contracts.Event]([]byte(body)))(t)
		check.Equal(t, string(check.Must(contracts.Encode(e))(t)), minimalEvent+want+`}`, body)

		// All other ways to read and to write an event are the same.
		var v1, v2 contracts.Event
		check.OK(t, json.Unmarshal([]byte(body), &v1))
		check.Equal(t, v1, e)
		if !strings.Contains(body, `\ud83d"`) { // which encoding/json/v2 refuses by default
			check.OK(t, jsonv2.Unmarshal([]byte(body), &v2))
			check.Equal(t, v2, e)
		}
		again := check.Must(contracts.Decode[contracts.Event](check.Must(json.Marshal(e))(t)))(t)
		check.Equal(t, check.Must(again.Fingerprint())(t), check.Must(e.Fingerprint())(t), "fingerprint of "+body)
		msg := check.Must(e.Msg("/source"))(t)
		envelope := check.Must(contracts.ParseCloudEvent(msg.Header, msg.Data))(t)
		inside := check.Must(contracts.Decode[contracts.Event](envelope.Data))(t)
		check.Equal(t, string(check.Must(contracts.Encode(inside))(t)), minimalEvent+want+`}`, "in a CloudEvent")
	}
}

// Extra is as strict as the rest of an event.
func TestExtraIsChecked(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 64) + strings.Repeat("]", 64)
	for body, want := range map[string]string{
		`,"a":1,"\u0061":2}`:             "/a",
		`,"a":{"b":[{"c":1,"c":2}]}}`:    "/a/b/0/c",
		`,"event\u005fid":"f"}`:          "/event_id",
		`,"\ud83d":1,"\ud83e":2}`:        "/�",
		`,"a":` + deep + `}`:             "",
		`,"a":"` + "\xed\xa0\x80" + `"}`: "",
		`,"a":01}`:                       "",
		`,"a":}`:                         "",
	} {
		_, err := contracts.Decode[contracts.Event]([]byte(minimalEvent + body))
		got := paths(err)
		check.That(t, len(got) == 1 && got[0] == want, "%.60s: %v, want a problem at %q", body, err, want)
		check.That(t, json.Unmarshal([]byte(minimalEvent+body), new(contracts.Event)) != nil, "encoding/json takes %.60s", body)
	}
	made := contracts.Event{EventID: "e", EventType: "X", AggregateType: "Y"}
	for name, value := range map[string]string{"event_id": `"f"`, "occurred_at": "null", "a": "{", "b": deep, "c": `{"x":1,"x":2}`, "d": "1 2", "\xff": "1"} {
		made.Extra = map[string]json.RawMessage{name: json.RawMessage(value)}
		_, err := contracts.Encode(made)
		check.That(t, errors.Is(err, contracts.ErrInvalid), "%q: %v", name, err)
	}
	made.Extra = map[string]json.RawMessage{"large": json.RawMessage(`"` + strings.Repeat("x", contracts.MaxBody) + `"`)}
	check.ErrorIs(t, check.Err(made.Msg("/source")), contracts.ErrTooLarge)
	made.Extra = map[string]json.RawMessage{"a": nil, "b": {}}
	check.Equal(t, string(check.Must(contracts.Encode(made))(t)), minimalEvent+"}", "empty values")
}

// The members of Extra count for the identity of an event, as its fields do.
func TestFingerprintCountsExtra(t *testing.T) {
	t.Parallel()
	mark := func(more string) string {
		e := check.Must(contracts.Decode[contracts.Event]([]byte(minimalEvent + more + "}")))(t)
		return check.Must(e.Fingerprint())(t)
	}
	check.Equal(t, mark(`,"b":{"d":4.0,"c":1},"a":"\u0041"`), mark(`,"a":"A","b":{"c":1,"d":4},"occurred_at":"2026-01-01T00:00:00Z"`),
		"order and spelling")
	for _, other := range []string{`,"a":null`, `,"a":1`, `,"a":"1"`, `,"b":1`, `,"user_id":"1"`, `,"payload":1`} {
		check.That(t, mark(other) != mark(""), "%s is the event without it", other)
		check.That(t, other == `,"a":1` || mark(other) != mark(`,"a":1`), "%s is another", other)
	}
}
