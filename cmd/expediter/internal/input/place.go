package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Place is one place of a file to look up.
type Place struct {
	// Bytes is the length of the record.
	Bytes int

	// Offset is the number of bytes of all files up to the end of this place. A progress bar uses it as the progress
	// when this place is done.
	Offset int64

	// Position is the position at which the place starts in its file.
	Position Position

	// Restaurant is the valid place. It keeps unknown fields: from JSON byte for byte, from CSV as strings under the column's name.
	Restaurant contracts.Restaurant
}

// Position is a line of a file.
type Position struct {
	// File is the path as it was given, or "stdin".
	File string

	// Line counts from 1.
	Line int
}

// String returns file:line.
func (p Position) String() string {
	return p.File + ":" + strconv.Itoa(p.Line)
}

// problemsOf returns the fields that the rules of the wire format refuse.
func problemsOf(err error) []FieldError {
	invalid, ok := errors.AsType[*contracts.ValidationError](err)
	if !ok {
		return []FieldError{{Problem: err.Error()}}
	}
	problems := make([]FieldError, len(invalid.Fields))
	for i, f := range invalid.Fields {
		problems[i] = FieldError{Field: strings.ReplaceAll(strings.TrimPrefix(f.Path, "/"), "/", "."), Problem: f.Problem}
	}
	return problems
}

// The wire names of the fields that every place needs.
const (
	fieldID   = "placeId"
	fieldName = "name"
	fieldCity = "cityText"
)

// columnNames has the folded names of columns for each field. The first column of a header with one of the names has the field, and
// the others are passed through.
var columnNames = map[string][]string{
	fieldID: {"placeid", "id"}, fieldName: {"name"}, fieldCity: {"citytext", "city"}, "address": {"address", "addr"}, "phone": {"phone"},
	"lat": {"lat", "latitude"}, "lng": {"lng", "lon", "longitude"},
}

// columnsOf returns the columns of the known fields.
func columnsOf(header []string) map[string]int {
	found := make(map[string]int, len(columnNames))
	for field, names := range columnNames {
		for _, name := range slices.Backward(names) {
			if at := slices.IndexFunc(header, func(h string) bool { return fold(h) == name }); at >= 0 {
				found[field] = at
			}
		}
	}
	return found
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

// encodeRow makes the JSON object of a row. A coordinate that is no number becomes a text, which validation refuses.
func encodeRow(header, cells []string, known map[string]int) (json.RawMessage, error) {
	place, point := map[string]any{}, map[string]any{}
	for i, cell := range cells {
		if !utf8.ValidString(cell) {
			return nil, fmt.Errorf("%s is not valid UTF-8; save the file as UTF-8", excerpt([]byte(header[i])))
		}
		if header[i] != "" {
			place[header[i]] = cell
		}
	}
	for field, at := range known {
		delete(place, header[at])
		delete(place, field) // a foreign column never replaces a known one
	}
	for field, at := range known {
		text := strings.TrimSpace(cells[at])
		degrees, err := strconv.ParseFloat(text, 64)
		switch {
		case text == "":
		case field != "lat" && field != "lng":
			place[field] = text
		case err != nil || math.IsNaN(degrees) || math.IsInf(degrees, 0):
			point[field] = text
		default:
			point[field] = degrees
		}
	}
	if len(point) > 0 {
		place["location"] = point
	}
	return encode(place)
}

// encode returns a value as JSON that leaves <, > and & readable.
func encode(value any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

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
