package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestValues(t *testing.T) {
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
		`[1.0,-0.0]`:                                                                  `[1,0]`,
	} {
		data := []byte(in)
		got, err := JSON(data)
		check.That(t, err == nil && string(got) == want, "%s: got %s, %v; want %s", in, got, err, want)
		check.That(t, string(data) == in, "%s was overwritten: %s", in, data)
	}
}

func TestRefused(t *testing.T) {
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
		"huge number":              "10e1000000",
		"tiny number":              "1e-99999999999999999999",
		"byte order mark":          "\ufeff1",
	} {
		got, err := JSON([]byte(in))
		check.That(t, err != nil, "%s: got %s, want an error", name, got)
	}
	check.Is(t, check.Err(JSON([]byte(strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)))), nil, "10,000 levels")
}

// The doubles of RFC 8785, appendix B.
func TestDoubles(t *testing.T) {
	t.Parallel()
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0",
		0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308", 0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992", 0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22", 0x44b52d02c7e14af6: "1e+23", 0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000", 0x444b1ae4d6e2ef4f: "999999999999999900000", 0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7", 0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332", 0x41b3de4355555554: "333333333.33333325", 0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334", 0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		data := check.Must(Marshal(math.Float64frombits(bits)))(t)
		got, err := JSON(data)
		check.That(t, err == nil && string(got) == want, "%016x: got %s, %v; want %s", bits, got, err, want)
	}
}

func TestSpellings(t *testing.T) {
	t.Parallel()
	for want, spellings := range map[string][]string{
		"1":                    {"1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "0.0000001e7", "1.000000000000000000000000"},
		"0":                    {"0", "-0", "0.0", "-0e5", "0e-1000000"},
		"-100":                 {"-100", "-1e2", "-100.0", "-0.1E3"},
		"9007199254740993":     {"9007199254740993", "9007199254740993.0", "9.007199254740993e15"},
		"9007199254740992":     {"9007199254740992"},
		"18446744073709551615": {"18446744073709551615"},
		"100000000000000000001": {
			"100000000000000000001", "1.00000000000000000001e20",
		},
		"1.000000000000000000001e+21": {"1000000000000000000001"},
		"1e+400":                      {"1e400", "1" + strings.Repeat("0", 400)},
		"1e-400":                      {"1e-400", "0." + strings.Repeat("0", 399) + "1"},
		"0.1":                         {"0.1", "1e-1", "0.10"},
		"0.10000000000000001":         {"0.10000000000000001"}, // the same double as 0.1, and another number
		"123.456":                     {"123.456", "1.23456e2"},
		"1e-7":                        {"0.0000001"},
	} {
		for _, s := range spellings {
			got, err := JSON([]byte(s))
			check.That(t, err == nil && string(got) == want, "%s: got %s, %v; want %s", s, got, err, want)
		}
	}
}

func TestMarshal(t *testing.T) {
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
		data, err := Marshal(tt.in)
		if err == nil {
			data, err = JSON(data)
		}
		check.That(t, (err != nil) == (tt.want == "") && (err != nil || string(data) == tt.want),
			"%#v: got %s, %v; want %s", tt.in, data, err, tt.want)
	}
}

// Any value has one form, however it is written, and the form is that value.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2.50,-0,1e3,"x\u00e9\ud83d\ude00",null,true],"":{}}`, `1e400`, `"\ud800"`, `{"a":1,"a":1}`, "\"\xff\"", `[[[[]]]]`, `9007199254740993`, `"1,2]"`,
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		form, err := JSON(data)
		if err != nil {
			return
		}
		check.Require(t, json.Valid(data) && utf8.Valid(form), "accepted %q as %q", data, form)
		again, err := JSON(form)
		check.Require(t, err == nil && bytes.Equal(again, form), "%q of %q is not canonical: %q, %v", form, data, again, err)
		// Numbers with exponents are compared by FuzzNumbers, within bounds.
		check.Require(t, len(data) >= 2000 || bytes.ContainsAny(data, "eE") || reflect.DeepEqual(tree(t, data), tree(t, form)),
			"%q is another value than %q", form, data)
		other := respell(t, form, rand.New(rand.NewPCG(seed, 0)))
		again, err = JSON(other)
		check.Require(t, err == nil && bytes.Equal(again, form), "%q, written as %q, became %q, %v", form, other, again, err)
	})
}

// Different numbers have different forms, equal ones the same.
func FuzzNumbers(f *testing.F) {
	f.Add("1", "1.0")
	f.Add("9007199254740993", "9007199254740992")
	f.Add("1e21", "1000000000000000000000")
	f.Add("0.1", "0.10000000000000001")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, okX := rational(a)
		y, okY := rational(b)
		if !okX || !okY {
			return
		}
		formX, errX := JSON([]byte(a))
		formY, errY := JSON([]byte(b))
		check.Require(t, errX == nil && errY == nil, "%q: %v; %q: %v", a, errX, b, errY)
		check.That(t, (x.Cmp(y) == 0) == bytes.Equal(formX, formY), "%q is %s, %q is %s", a, formX, b, formY)
	})
}

// rational is a number's value by another way; numbers that would take long are left out.
func rational(s string) (*big.Rat, bool) {
	if !json.Valid([]byte(s)) || len(s) > 2000 || strings.TrimSpace(s) != s {
		return nil, false
	}
	if e := strings.IndexAny(s, "eE"); e >= 0 {
		if n, err := strconv.Atoi(s[e+1:]); err != nil || n < -2000 || n > 2000 {
			return nil, false
		}
	}
	return new(big.Rat).SetString(s)
}

// tree decodes by another way, with numbers as their values.
func tree(t *testing.T, data []byte) any {
	t.Helper()
	v := decode(t, data)
	return exact(v)
}

func decode(t *testing.T, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	check.Require(t, err == nil, "%q: %v", data, err)
	return v
}

// exact replaces numbers by their values.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		if r, ok := rational(string(v)); ok {
			return r.String()
		}
		return "a number"
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}

// respell writes a value in one of its other forms.
func respell(t *testing.T, data []byte, r *rand.Rand) []byte {
	t.Helper()
	return write(nil, decode(t, data), r)
}

func write(out []byte, v any, r *rand.Rand) []byte {
	space := func() { out = append(out, strings.Repeat(" ", r.IntN(3))...) }
	space()
	switch v := v.(type) {
	case json.Number:
		out = append(out, v...)
		if !strings.ContainsAny(string(v), ".e") && r.IntN(2) == 0 {
			out = append(out, ".0e+0"...)
		}
	case string:
		out = append(out, '"')
		for _, c := range v {
			switch {
			case c > 0xffff:
				c -= 0x10000
				out = fmt.Appendf(out, `\u%04x\u%04X`, 0xd800+c>>10, 0xdc00+c&0x3ff)
			case c < ' ' || c == '"' || c == '\\' || r.IntN(2) == 0:
				out = fmt.Appendf(out, `\u%04X`, c)
			default:
				out = utf8.AppendRune(out, c)
			}
		}
		out = append(out, '"')
	case []any:
		out = append(out, '[')
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = write(out, e, r)
		}
		out = append(out, ']')
	case map[string]any:
		out = append(out, '{')
		first := true
		for k, e := range v { // in any order
			if !first {
				out = append(out, ',')
			}
			first = false
			out = write(out, k, r)
			out = append(out, ':')
			out = write(out, e, r)
		}
		out = append(out, '}')
	default:
		out = fmt.Append(out, v)
		if v == nil {
			out = append(out[:len(out)-len("<nil>")], "null"...)
		}
	}
	space()
	return out
}
