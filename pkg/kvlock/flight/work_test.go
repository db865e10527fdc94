package flight

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A key that changes loses every result that is stored under it. So none of these may: add to the file, never edit it.
func TestGoldenKeys(t *testing.T) {
	t.Parallel()
	data := check.Must(os.ReadFile("testdata/keys.json"))(t)
	var golden []struct {
		Name    string `json:"name"`
		Process string `json:"process"`
		Version string `json:"version"`
		JobID   string `json:"jobId"`
		Inputs  string `json:"inputs"`
		Text    string `json:"text"` // the bytes that are hashed
		Key     string `json:"key"`
	}
	check.OK(t, json.Unmarshal(data, &golden))
	check.Require(t, len(golden) >= 20, "%d golden keys", len(golden))
	for _, g := range golden {
		w := Work{Process: g.Process, Version: g.Version, JobID: g.JobID, Inputs: json.RawMessage(g.Inputs)}
		text, err := w.text()
		check.That(t, err == nil && string(text) == g.Text, "%s: hashed\n%s, %v; want\n%s", g.Name, text, err, g.Text)
		key, err := w.Key()
		check.That(t, err == nil && key == g.Key, "%s: key %s, %v; want %s", g.Name, key, err, g.Key)
		sum := sha256.Sum256([]byte(g.Text))
		check.That(t, hex.EncodeToString(sum[:]) == g.Key, "%s: the key in the file is not the hash of the text in it", g.Name)
	}
}

type shape struct {
	Distance float64         `json:"distance"`
	Geometry json.RawMessage `json:"geometry"`
	Since    time.Time       `json:"since,omitzero"`
}

func TestEqualWorks(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, works := range map[string][]Work{
		"a struct, a map and two texts": {
			{Process: "p", Inputs: shape{Distance: 100, Geometry: json.RawMessage(`[1.0, 2]`), Since: since}},
			{Process: "p", Inputs: map[string]any{"since": since, "geometry": []int{1, 2}, "distance": 1e2}},
			{Process: "p", Inputs: json.RawMessage("\n{\"since\" : \"2026-01-02T03:04:05.000000006Z\", \"geometry\":[1,2e0],\"distance\":100.0}")},
			{Process: "p", Inputs: json.RawMessage(`{"\u0064istance":1E2,"geometry":[10e-1,2],"since":"2026-01-02T03:04:05.000000006Z"}`)},
		},
		"nothing": {{Process: "p"}, {Process: "p", Inputs: json.RawMessage(nil)}, {Process: "p", Inputs: json.RawMessage(" null ")}, {Process: "p", Inputs: (*shape)(nil)}},
	} {
		want, err := works[0].Key()
		check.That(t, err == nil && len(want) == 64 && strings.Trim(want, "0123456789abcdef") == "" && kv.CheckKey(want) == nil,
			"%s: got %q, %v", name, want, err)
		for _, w := range works[1:] {
			check.Equal(t, check.Must(w.Key())(t), want, name)
		}
	}
}

func TestDifferentWorks(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	seen := map[string]Work{}
	for _, w := range []Work{
		{Process: "p"},
		{Process: "q"},
		{Process: "p", Version: "1"},
		{Process: "p1"},
		{Process: "p", JobID: "1"},
		{Process: "p", Version: "1", JobID: "1"},
		{Process: "p", Version: "11"},
		{Process: "p", JobID: "11"},
		{Process: "p", JobID: "null"},
		{Process: `p",1,"`},
		{Process: `p"`, Version: `,1,"`},
		{Process: "p", Inputs: "1"},
		{Process: "p", Inputs: 1},
		{Process: "p", Inputs: "null"},
		{Process: "p", Inputs: []any{}},
		{Process: "p", Inputs: map[string]int{}},
		{Process: "p", Inputs: []int{1, 2}},
		{Process: "p", Inputs: []int{12}},
		{Process: "p", Inputs: []int{2, 1}},
		{Process: "p", Inputs: [][]int{{1, 2}}},
		{Process: "p", Inputs: [][]int{{1}, {2}}},
		{Process: "p", Inputs: int64(1 << 53)},
		{Process: "p", Inputs: int64(1<<53 + 1)},
		{Process: "p", Inputs: raw("9007199254740993.5")},
		{Process: "p", Inputs: raw("0.1")},
		{Process: "p", Inputs: math.MaxFloat64},
		{Process: "p", Inputs: true},
		{Process: "p", Inputs: "é"},
		{Process: "p", Inputs: "e\u0301"}, // looks the same, and is not
		{Process: "p", Inputs: "\ufffd"},
		{Process: "p", Inputs: `\ufffd`},
		{Process: "p", Inputs: map[string]any{"a": nil}},
		{Process: "p", Inputs: map[string]string{"a": "1", "b": "2"}},
		{Process: "p", Inputs: map[string]string{"a": "2", "b": "1"}},
	} {
		key, err := w.Key()
		check.That(t, err == nil, "%+v: %v", w, err)
		other, twice := seen[key]
		check.That(t, !twice, "%+v and %+v have the same key", w, other)
		seen[key] = w
	}
}

func TestWorksWithoutAKey(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]Work{
		"no process":          {Inputs: 1},
		"process not UTF-8":   {Process: "\xff"},
		"version not UTF-8":   {Process: "p", Version: "\xff"},
		"job not UTF-8":       {Process: "p", JobID: "\xff"},
		"input not UTF-8":     {Process: "p", Inputs: []string{"\xff"}},
		"NaN":                 {Process: "p", Inputs: math.NaN()},
		"beyond a float64":    {Process: "p", Inputs: json.RawMessage("1e400")},
		"infinity":            {Process: "p", Inputs: shape{Distance: math.Inf(1), Geometry: json.RawMessage("1")}},
		"duplicate names":     {Process: "p", Inputs: json.RawMessage(`{"a":1,"a":1}`)},
		"two values":          {Process: "p", Inputs: json.RawMessage("1,2")},
		"out of the array":    {Process: "p", Inputs: json.RawMessage("1],[2")},
		"nothing":             {Process: "p", Inputs: json.RawMessage{}},
		"a channel":           {Process: "p", Inputs: make(chan int)},
		"a function's result": {Process: "p", Inputs: marshalFails{}},
	} {
		key, err := w.Key()
		check.That(t, errors.Is(err, ErrInvalidInputs), "%s: got %q, %v; want ErrInvalidInputs", name, key, err)
	}
	_, err := Work{Process: "p", Inputs: marshalFails{}}.Key()
	check.That(t, errors.Is(err, errMarshal), "the cause is gone: %v", err)
}

var errMarshal = errors.New("out of shape")

type marshalFails struct{}

func (marshalFails) MarshalJSON() ([]byte, error) { return nil, errMarshal }

// Two works have the same key only if they are the same.
func FuzzWork(f *testing.F) {
	f.Add("p", "", "", `{"a":1}`, "p", "", "", `{"a":1.0}`)
	f.Add("p", "1", "", `null`, "p1", "", "", `null`)
	f.Add("p", "", "null", `0`, "p", "", "", `-0`)
	f.Fuzz(func(t *testing.T, process, version, job, inputs, process2, version2, job2, inputs2 string) {
		a := Work{Process: process, Version: version, JobID: job, Inputs: json.RawMessage(inputs)}
		b := Work{Process: process2, Version: version2, JobID: job2, Inputs: json.RawMessage(inputs2)}
		keyA, errA := a.Key()
		keyB, errB := b.Key()
		if errA != nil || errB != nil {
			return
		}
		var x, y any
		if err := errors.Join(json.Unmarshal([]byte(inputs), &x), json.Unmarshal([]byte(inputs2), &y)); err != nil {
			return // a number beyond a double
		}
		same := process == process2 && version == version2 && job == job2 && reflect.DeepEqual(x, y)
		check.That(t, keyA != keyB || same, "%+v and %+v have the same key", a, b)
	})
}

func TestCanonicalForm(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		` { "b" : 1 , "a" : [ ] } `:            `{"a":[],"b":1}`,
		"\t[true,false,null]\n":                `[true,false,null]`,
		`"\u0041\/\u005c\"\u000a\u007f\u2028"`: "\"A/\\\\\\\"\\n\u007f\u2028\"",
		`"\u0000\u001F\b\f"`:                   `"\u0000\u001f\b\f"`,
		`"<>&"`:                                `"<>&"`,
		`"\ud83d\ude00 \ufffd"`:                "\"\U0001f600 \ufffd\"",
		// By UTF-16 units: the surrogates of a smiley come before U+FB33 (RFC 8785, 3.2.3).
		`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`: "{\"\\r\":2,\"1\":4,\"\u0080\":6,\"ö\":7,\"€\":1,\"\U0001f600\":5,\"\ufb33\":3}",
		`{"a":{"d":"-1","c":"1e5,2"},"":"\\"}`:                                        `{"":"\\","a":{"c":"1e5,2","d":"-1"}}`, // no numbers
	} {
		data := []byte(in)
		got, err := canonical(data)
		check.That(t, err == nil && string(got) == want, "%s: got %s, %v; want %s", in, got, err, want)
		check.That(t, string(data) == in, "%s was overwritten: %s", in, data)
	}
}

func TestNoCanonicalForm(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"nothing":                  "",
		"two values":               "1 2",
		"two elements":             "1,2",
		"a bracket":                "1]",
		"NaN":                      "NaN",
		"infinity":                 "-Infinity",
		"plus":                     "+1",
		"octal":                    "01",
		"duplicate name":           `{"a":1,"b":2,"a":1}`,
		"duplicate, once escaped":  `{"a":1,"\u0061":1}`,
		"invalid UTF-8":            "\"\xff\"",
		"invalid UTF-8 in a name":  "{\"\xc3\":1}",
		"UTF-8 of a surrogate":     "\"\xed\xa0\x80\"",
		"lone high surrogate":      `"\ud800"`,
		"lone low surrogate":       `"\udc00x"`,
		"surrogates the wrong way": `"\ude00\ud83d"`,
		"control character":        "\"\x01\"",
		"too deep":                 strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
		"beyond a float64":         "1e400",
		"beyond it, among others":  `{"b":[1.7976931348623157e308,"1e400",-1.8e308]}`,
		"byte order mark":          "\ufeff1",
	} {
		got, err := canonical([]byte(in))
		check.That(t, err != nil, "%s: got %s, want an error", name, got)
	}
	check.ErrorIs(t, check.Err(canonical([]byte(strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)))), nil, "10,000 levels")
}

func TestCanonicalNumbers(t *testing.T) {
	t.Parallel()
	for want, spellings := range map[string][]string{
		"1":                         {"1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1"},
		"0":                         {"0", "-0", "0.0", "-0e5", "1e-400"},
		"-100":                      {"-100", "-1e2", "-100.0"},
		"9007199254740992":          {"9007199254740992", "9007199254740992.0"},
		"9007199254740993":          {"9007199254740993"},
		"18446744073709551615":      {"18446744073709551615"},
		"-100000000000000000000001": {"-100000000000000000000001"},
		"0.1":                       {"0.1", "1e-1", "0.10", "0.10000000000000001"}, // the same double
		"1e-7":                      {"0.0000001"},
		"1.7976931348623157e+308":   {"1.7976931348623157e308"},
		"[1.7976931348623157e+308]": {"[1.7976931348623157e+308 ]"},
		`"1.7976931348623157e+308"`: {`"1.7976931348623157e+308"`},
	} {
		for _, s := range spellings {
			got, err := canonical([]byte(s))
			check.That(t, err == nil && string(got) == want, "%s: got %s, %v; want %s", s, got, err, want)
		}
	}
}

// The form of a value is that value, and its own form.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2.50,-0,1e3,"x\u00e9\ud83d\ude00",null,true],"":{}}`, `1e400`, `"\ud800"`, `{"a":1,"a":1}`, "\"\xff\"", `9007199254740993`, `"1,2]"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		form, err := canonical(data)
		if err != nil {
			return
		}
		check.Require(t, json.Valid(data) && utf8.Valid(form), "accepted %q as %q", data, form)
		again, err := canonical(form)
		check.Require(t, err == nil && bytes.Equal(again, form), "%q of %q is not canonical: %q, %v", form, data, again, err)
		var x, y any
		if json.Unmarshal(data, &x) == nil {
			err := json.Unmarshal(form, &y)
			check.Require(t, err == nil && reflect.DeepEqual(x, y), "%q is another value than %q", form, data)
		}
	})
}
