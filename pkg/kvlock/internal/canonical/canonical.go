// Package canonical writes JSON in one form for each value, so that equal values have equal hashes.
//
// The form is RFC 8785, except for numbers. They keep their value to the last digit, where RFC 8785 would round them to a double. So
// 9007199254740993 is not 9007199254740992, and 1e400 is neither an error nor 1.8e308. A number that was written by RFC 8785's own rule,
// as encoding/json does for a float64, looks the same in both.
package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// JSON returns data, one JSON value, in canonical form: no white space, members sorted by the UTF-16 units of their names, strings
// with the fewest escapes, numbers as [number] writes them. It refuses duplicate names, invalid UTF-8 and lone surrogates, more than
// 10,000 levels, and exponents above maxExponent. It does not change data.
func JSON(data []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(data))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return nil, fmt.Errorf("no canonical form: %w", err)
	}
	return numbers(v)
}

// numbers rewrites the numbers in JSON that is canonical otherwise.
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

// stringLen returns the length of the string at the beginning of v, with its quotes.
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

// Marshal returns v as [encoding/json] writes it, and an error where encoding/json would write another value, because it replaces bytes
// that are not UTF-8. A json.RawMessage is returned as it is.
func Marshal(v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok && raw != nil {
		return raw, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the type or value at fault
	}
	// encoding/json writes the replacement as an escape, but never a U+FFFD of the input.
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

// Quote appends s to dst as a JSON string. It returns an error when s is not UTF-8.
func Quote(dst []byte, s string) ([]byte, error) {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", s, err)
	}
	return out, nil
}

const (
	// plain is the largest number of digits before the point without an exponent (ECMA-262, Number::toString).
	plain = 21

	// leading is the largest number of zeros after "0.".
	leading = 5

	// maxExponent bounds numbers: far beyond any measurement, far below the exponents that overflow.
	maxExponent = 1_000_000
)

var errExponent = fmt.Errorf("number is beyond 1e±%d", maxExponent)

// number appends a JSON number to dst in the notation of ECMAScript, which RFC 8785 takes over: the digits without zeros
// at either end, and an exponent outside of 1e-6 to 1e21. All spellings of a value become one, and no two values have the same.
func number(dst []byte, text string) ([]byte, error) {
	sign, digits, point, err := parse(text)
	if err != nil {
		return nil, err
	}
	if digits == "" {
		return append(dst, '0'), nil // -0 too
	}
	dst = append(dst, sign...)
	switch n := len(digits); {
	case n <= point && point <= plain:
		dst = append(dst, digits...)
		return append(dst, strings.Repeat("0", point-n)...), nil
	case 0 < point && point <= plain:
		dst = append(dst, digits[:point]...)
		dst = append(dst, '.')
		return append(dst, digits[point:]...), nil
	case -leading <= point && point <= 0:
		dst = append(dst, "0."...)
		dst = append(dst, strings.Repeat("0", -point)...)
		return append(dst, digits...), nil
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	dst = append(dst, 'e')
	if point > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(point-1), 10), nil
}

// parse takes a JSON number apart: its value is 0.digits times 10 to the power of point. Digits neither begin nor end
// with a zero; zero has none.
func parse(text string) (sign, digits string, point int, err error) {
	rest, negative := strings.CutPrefix(text, "-")
	if negative {
		sign = "-"
	}
	if e := strings.IndexAny(rest, "eE"); e >= 0 {
		exponent := rest[e+1:]
		rest = rest[:e]
		point, err = strconv.Atoi(exponent)
		if err != nil || max(point, -point) > math.MaxInt32 {
			return "", "", 0, errExponent
		}
	}
	whole, fraction, _ := strings.Cut(rest, ".")
	digits = whole + fraction
	point += len(whole)
	significant := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(significant)
	if digits = strings.TrimRight(significant, "0"); digits != "" && max(point, -point) > maxExponent {
		return "", "", 0, errExponent
	}
	return sign, digits, point, nil
}
