package flight

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// canonical returns data, one JSON value, in the form of RFC 8785, except that it keeps all digits
// of a number without fraction and exponent: RFC 8785 would make 9007199254740992 of
// 9007199254740993. It refuses duplicate names, invalid UTF-8 and lone surrogates, more than 10,000
// levels, and numbers beyond a float64. It does not change data.
func canonical(data []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(data))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return nil, fmt.Errorf("no canonical form: %w", err)
	}
	// All numbers beyond a float64 would be this one.
	if bytes.Contains(v, []byte("1.7976931348623157e+308")) && overflows(data) {
		return nil, errors.New("no canonical form: a number is beyond a float64")
	}
	return v, nil
}

// overflows reports whether a valid JSON value has a number beyond a float64.
func overflows(data []byte) bool {
	for d := jsontext.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.ReadToken()
		if err != nil {
			return false // the end
		}
		if token.Kind() == '0' {
			if _, err := strconv.ParseFloat(token.String(), 64); err != nil {
				return true
			}
		}
	}
}

// encode returns v as [encoding/json] writes it, and an error where encoding/json would write another value, because it replaces bytes
// that are not UTF-8. A json.RawMessage is returned as it is.
func encode(v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok && raw != nil {
		return raw, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
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
			return nil, errors.New(`string is not valid UTF-8 (or a json.RawMessage in it has the escape \ufffd: write the character)`)
		}
	}
}
