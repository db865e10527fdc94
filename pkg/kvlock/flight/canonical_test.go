package flight

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
	check.Is(t, check.Err(canonical([]byte(strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)))), nil, "10,000 levels")
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

func TestEncode(t *testing.T) {
	t.Parallel()
	type shape struct {
		Name string          `json:"name"`
		Raw  json.RawMessage `json:"raw"`
		When time.Time       `json:"when"`
		Tags map[int]bool    `json:"tags,omitempty"`
	}
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		in   any
		want string // "" for an error
	}{
		{nil, "null"},
		{json.RawMessage(nil), "null"},
		{json.RawMessage(`{"b":1,"a":"\ufffd"}`), "{\"a\":\"\ufffd\",\"b\":1}"},
		{shape{"<é>\ufffd", json.RawMessage(` [1.50] `), when, map[int]bool{10: true, 9: false}}, "{\"name\":\"<é>\ufffd\",\"raw\":[1.5],\"tags\":{\"10\":true,\"9\":false},\"when\":\"2026-01-02T03:04:05Z\"}"},
		{`\ufffd`, `"\\ufffd"`}, // as the program has it: six characters
		{`\` + "\xff", ""},
		{"\xff", ""},
		{map[string]int{"\xff": 1}, ""},
		{[]any{"a", map[string]any{"b": "c\xc3"}}, ""},
		{json.RawMessage("\"\xff\""), ""},
		{shape{Raw: json.RawMessage("\"\xff\"")}, ""},
		{shape{Raw: json.RawMessage(`{"a":1,"a":2}`)}, ""},
		{json.RawMessage{}, ""},
		{math.NaN(), ""},
		{math.Inf(-1), ""},
		{json.Number("1e"), ""},
		{func() {}, ""},
		{uint64(math.MaxUint64), "18446744073709551615"},
		{float32(0.1), "0.1"},
		{json.Number("1.50"), "1.5"},
		{[]byte("ab"), `"YWI="`},
	} {
		data, err := encode(tt.in)
		if err == nil {
			data, err = canonical(data)
		}
		check.That(t, (err != nil) == (tt.want == "") && (err != nil || string(data) == tt.want),
			"%#v: got %s, %v; want %s", tt.in, data, err, tt.want)
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
