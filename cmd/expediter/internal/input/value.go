package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parseObject splits a JSON object into its members, in their order and with their values as written.
func parseObject(raw json.RawMessage) ([]field, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("want a JSON object, got " + excerpt(raw))
	}
	var fields []field
	seen := make(map[string]bool)
	for dec.More() {
		f, err := member(dec)
		if err != nil {
			return nil, err
		}
		if seen[f.name] {
			return nil, fmt.Errorf("the field %q is given twice", f.name)
		}
		seen[f.name] = true
		fields = append(fields, f)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("not a complete JSON object: %w", err)
	}
	if _, err := dec.Token(); err == nil {
		return nil, errors.New("more than one JSON value on the line")
	}
	if dec.InputOffset() != int64(len(bytes.TrimRight(raw, " \t\r\n"))) {
		return nil, errors.New("text after the JSON object")
	}
	return fields, nil
}

func member(dec *json.Decoder) (field, error) {
	tok, err := dec.Token()
	if err != nil {
		return field{}, fmt.Errorf("not valid JSON: %w", err)
	}
	name, ok := tok.(string)
	if !ok {
		return field{}, fmt.Errorf("not valid JSON: want a field name, got %v", tok)
	}
	var value json.RawMessage
	if err := dec.Decode(&value); err != nil {
		return field{}, fmt.Errorf("the value of %q is not valid JSON: %w", name, err)
	}
	return field{name: name, value: value}, nil
}

func isString(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func isNumber(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// plainPoint reports whether a location already has the wire's form: both members under their names, as numbers.
func plainPoint(raw json.RawMessage) bool {
	members, err := parseObject(raw)
	if err != nil {
		return false
	}
	plain := 0
	for _, m := range members {
		if (m.name == "lat" || m.name == "lng") && isNumber(m.value) {
			plain++
		}
	}
	return plain == 2
}

// quote returns text as a JSON string that leaves <, > and & readable.
func quote(text string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) //nolint:errcheck,errchkjson // a string into a buffer
	return bytes.TrimRight(buf.Bytes(), "\n")
}

// excerpt returns a value in a form that is safe and short enough for an error message.
func excerpt(raw []byte) string {
	const most = 40
	text := strings.ToValidUTF8(string(raw), "\ufffd")
	if !strings.HasPrefix(text, `"`) {
		text = strconv.Quote(text)
	}
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "..."
}

// The wire names of the fields that this package knows.
const (
	fieldID       = "placeId"
	fieldName     = "name"
	fieldAddress  = "address"
	fieldCity     = "cityText"
	fieldPhone    = "phone"
	fieldLocation = "location"
	fieldLat      = "location.lat"
	fieldLng      = "location.lng"
)

// aliases maps a folded name to its field. When several columns of a record mean the same field, the one that comes
// first in preference wins and the others are passed through untouched.
var aliases = map[string]struct {
	field      string
	preference int
}{
	"placeid":   {fieldID, 0},
	"id":        {fieldID, 1},
	"name":      {fieldName, 0},
	"address":   {fieldAddress, 0},
	"addr":      {fieldAddress, 1},
	"citytext":  {fieldCity, 0},
	"city":      {fieldCity, 1},
	"phone":     {fieldPhone, 0},
	"location":  {fieldLocation, 0},
	"lat":       {fieldLat, 0},
	"latitude":  {fieldLat, 1},
	"lng":       {fieldLng, 0},
	"lon":       {fieldLng, 1},
	"longitude": {fieldLng, 2},
}

// fold makes "Place ID", "place_id" and "placeId" the same name.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case ' ', '_', '-', '\u00a0', '\u200e', '\u200f', '\ufeff':
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// field is one name and value of a record.
type field struct {
	name  string
	value json.RawMessage
}

// columns finds the known fields among names: the result maps a wire name to its index.
func columns(names func(int) string, count int) map[string]int {
	found := make(map[string]int, len(aliases))
	preference := make(map[string]int, len(aliases))
	for i := range count {
		alias, known := aliases[fold(names(i))]
		if !known {
			continue
		}
		if _, taken := found[alias.field]; taken && preference[alias.field] <= alias.preference {
			continue
		}
		found[alias.field], preference[alias.field] = i, alias.preference
	}
	return found
}
