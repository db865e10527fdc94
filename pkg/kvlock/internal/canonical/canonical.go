// Package canonical writes JSON in one form for each value, so that equal values have equal hashes.
//
// The form is RFC 8785, but for numbers: those keep their value to the last digit, where RFC 8785 would round them to a
// double. So 9007199254740993 is not 9007199254740992, and 1e400 is neither an error nor 1.8e308. A number that was
// written by RFC 8785's own rule, as encoding/json does for a float64, looks the same in both.
package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// JSON returns data, one JSON value, in canonical form: no white space, members sorted by the UTF-16 units of their names, strings
// with the fewest escapes, numbers as [number] has them. It refuses duplicate names, invalid UTF-8 and lone surrogates,
// more than 10,000 levels, and exponents out of all proportion. It leaves data as it is.
func JSON(data []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(data))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return nil, fmt.Errorf("no canonical form: %w", err)
	}
	return numbers(v)
}

// numbers rewrites the numbers in JSON that is canonical but for them.
func numbers(v []byte) ([]byte, error) {
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); {
		switch c := v[i]; {
		case c == '"':
			n := stringLen(v[i:])
			out = append(out, v[i:i+n]...)
			i += n
		case c == '-' || '0' <= c && c <= '9':
			n := bytes.IndexAny(v[i:], ",]}")
			if n < 0 {
				n = len(v) - i
			}
			var err error
			if out, err = number(out, string(v[i:i+n])); err != nil {
				return nil, err
			}
			i += n
		default:
			out = append(out, c)
			i++
		}
	}
	return out, nil
}

// stringLen is the length of the string that v begins with, with its quotes.
func stringLen(v []byte) int {
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(v)
}

var errReplaced = errors.New(`string is not valid UTF-8 (or a json.RawMessage in it has the escape \ufffd: write the character)`)

// Marshal returns v as [encoding/json] writes it, and an error where that would write another value: it replaces what is
// not UTF-8. A json.RawMessage is returned as it is.
func Marshal(v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok && raw != nil {
		return raw, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the type or value at fault
	}
	// What is replaced is written as an escape, and the character itself never is.
	for i, rest := 0, data; ; rest = data[i:] {
		n := bytes.Index(rest, []byte(`\ufffd`))
		if n < 0 {
			return data, nil
		}
		at := i + n
		i = at + 1
		if before := data[:at]; (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 0 {
			return nil, errReplaced
		}
	}
}

// Quote appends s to dst as a JSON string. It refuses what is not UTF-8.
func Quote(dst []byte, s string) ([]byte, error) {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", s, err)
	}
	return out, nil
}
