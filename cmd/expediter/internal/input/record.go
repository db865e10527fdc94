package input

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// record is one undecoded place.
type record struct {
	city     string // default city of the file
	end      int64  // offset after the record, over all files
	fields   []field
	position Position
	raw      json.RawMessage // the object as it was written; nil from CSV
}

// parsed has the values of the known fields of a record.
type parsed struct {
	address, city, id, name, phone string
	location                       *contracts.Location
}

// place checks the record and builds the place, or returns all its problems.
func (rec record) place() (Place, *RowError) {
	known := columns(func(i int) string { return rec.fields[i].name }, len(rec.fields))
	if _, given := known[fieldLocation]; given { // then a pair of columns is something else, and passed through
		delete(known, fieldLat)
		delete(known, fieldLng)
	}
	check := checker{rec: rec, known: known}
	values := parsed{
		address:  check.text(fieldAddress, false, false),
		city:     check.text(fieldCity, false, false),
		id:       check.text(fieldID, true, true),
		location: check.location(),
		name:     check.text(fieldName, true, false),
		phone:    check.text(fieldPhone, false, true),
	}
	values.city = cmp.Or(values.city, rec.city)
	place := Place{Offset: rec.end, Position: rec.position}
	if len(check.problems) == 0 {
		place.Body = rec.body(known, values)
		check.problems = decode(place.Body, &place.Restaurant)
	}
	if len(check.problems) > 0 {
		return Place{}, &RowError{Position: rec.position, Fields: check.problems}
	}
	return place, nil
}

// decode applies the rules of the wire format, so that a bad place is found here, with its line, and not when a request
// with a hundred places is refused.
func decode(body []byte, restaurant *contracts.Restaurant) []FieldError {
	err := restaurant.UnmarshalJSON(body)
	if err == nil {
		err = restaurant.Validate()
	}
	var invalid *contracts.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return []FieldError{{Problem: err.Error()}}
	}
	problems := make([]FieldError, len(invalid.Fields))
	for i, f := range invalid.Fields {
		problems[i] = FieldError{Field: strings.ReplaceAll(strings.TrimPrefix(f.Path, "/"), "/", "."), Problem: f.Problem}
	}
	return problems
}

// body returns the object as it was written when it already uses the wire names, and builds it otherwise.
func (rec record) body(known map[string]int, values parsed) json.RawMessage {
	if rec.raw != nil && rec.canonical(known, values) {
		return rec.raw
	}
	roles := make(map[int]string, len(known))
	for role, i := range known {
		roles[i] = role
	}
	out := objectWriter{taken: make(map[string]bool, len(rec.fields))}
	for _, name := range []string{fieldID, fieldName, fieldAddress, fieldCity, fieldPhone} {
		out.taken[name] = true // a foreign field never stands in for a known one
	}
	out.taken[fieldLocation] = values.location != nil
	for i, f := range rec.fields {
		out.member(f, roles[i], values)
	}
	if _, given := known[fieldCity]; values.city != "" && (!given || !out.wrote[fieldCity]) {
		out.put(fieldCity, quote(values.city))
	}
	return out.close()
}

func (rec record) canonical(known map[string]int, values parsed) bool {
	for role, i := range known {
		if rec.fields[i].name != role {
			return false
		}
	}
	for _, role := range []string{fieldID, fieldPhone} {
		if i, given := known[role]; given && !isString(rec.fields[i].value) && !isNull(rec.fields[i].value) {
			return false
		}
	}
	if i, given := known[fieldLocation]; given && values.location != nil && !plainPoint(rec.fields[i].value) {
		return false
	}
	i, given := known[fieldCity]
	return values.city == "" || given && !isNull(rec.fields[i].value) && string(rec.fields[i].value) != `""`
}

// objectWriter writes a JSON object member by member.
type objectWriter struct {
	buf   bytes.Buffer
	taken map[string]bool // names that only a known field may use
	wrote map[string]bool
}

func (w *objectWriter) member(f field, role string, values parsed) {
	switch role {
	case "":
		if !w.taken[f.name] && !w.wrote[f.name] {
			w.put(f.name, f.value)
		}
	case fieldLat, fieldLng, fieldLocation:
		if values.location == nil || w.wrote[fieldLocation] {
			return
		}
		if point, err := json.Marshal(values.location); err == nil { // two finite numbers
			w.put(fieldLocation, point)
		}
	default:
		if text := roleText(values, role); text != "" && !w.wrote[role] {
			w.put(role, quote(text))
		}
	}
}

func (w *objectWriter) put(name string, value []byte) {
	if w.wrote == nil {
		w.wrote = make(map[string]bool)
	}
	w.wrote[name] = true
	if w.buf.Len() == 0 {
		w.buf.WriteByte('{')
	} else {
		w.buf.WriteByte(',')
	}
	w.buf.Write(quote(name))
	w.buf.WriteByte(':')
	w.buf.Write(value)
}

func (w *objectWriter) close() json.RawMessage {
	w.buf.WriteByte('}')
	return w.buf.Bytes()
}

func roleText(values parsed, role string) string {
	switch role {
	case fieldAddress:
		return values.address
	case fieldCity:
		return values.city
	case fieldID:
		return values.id
	case fieldName:
		return values.name
	case fieldPhone:
		return values.phone
	}
	return ""
}

// checker collects the problems of a record.
type checker struct {
	known    map[string]int
	problems []FieldError
	rec      record
}

func (c *checker) problemf(name, format string, args ...any) {
	c.problems = append(c.problems, FieldError{Field: name, Problem: fmt.Sprintf(format, args...)})
}

func (c *checker) value(name string) json.RawMessage {
	i, given := c.known[name]
	if !given || isNull(c.rec.fields[i].value) {
		return nil
	}
	return c.rec.fields[i].value
}

// text returns a field as trimmed text. Ids and phone numbers that were written as JSON numbers are taken as written.
func (c *checker) text(name string, required, number bool) string {
	raw := c.value(name)
	text := ""
	switch {
	case raw == nil:
	case !utf8.Valid(raw):
		c.problemf(name, "not valid UTF-8; save the file as UTF-8")
		return ""
	case isString(raw):
		_ = json.Unmarshal(raw, &text) //nolint:errcheck // the decoder has accepted it as a string
		text = strings.TrimSpace(text)
	case number && isNumber(raw):
		text = string(raw)
	default:
		c.problemf(name, "want text, got %s", excerpt(raw))
		return ""
	}
	if text == "" && required {
		c.problemf(name, "missing")
	}
	return text
}

// location reads {"lat":..,"lng":..} or a pair of columns.
func (c *checker) location() *contracts.Location {
	latRaw, lngRaw := c.value(fieldLat), c.value(fieldLng)
	if raw := c.value(fieldLocation); raw != nil {
		members, err := parseObject(raw)
		if err != nil {
			c.problemf(fieldLocation, "want an object with lat and lng, got %s", excerpt(raw))
			return nil
		}
		inner := checker{rec: record{fields: members}, known: columns(func(i int) string { return members[i].name }, len(members))}
		latRaw, lngRaw = inner.value(fieldLat), inner.value(fieldLng)
		if latRaw == nil && lngRaw == nil {
			c.problemf(fieldLocation, "want lat and lng, got %s", excerpt(raw))
			return nil
		}
	}
	latText, latGiven, latOK := c.degrees(fieldLat, latRaw, 90)
	lngText, lngGiven, lngOK := c.degrees(fieldLng, lngRaw, 180)
	switch {
	case !latOK || !lngOK || !latGiven && !lngGiven:
		return nil
	case !latGiven:
		c.problemf(fieldLat, "missing, though the longitude is given")
		return nil
	case !lngGiven:
		c.problemf(fieldLng, "missing, though the latitude is given")
		return nil
	}
	return &contracts.Location{Lat: latText, Lng: lngText}
}

func (c *checker) degrees(name string, raw json.RawMessage, bound float64) (value float64, given, ok bool) {
	text := string(raw)
	if isString(raw) {
		_ = json.Unmarshal(raw, &text) //nolint:errcheck // the decoder has accepted it as a string
	}
	if text = strings.TrimSpace(text); text == "" {
		return 0, false, true
	}
	value, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(value) || math.IsInf(value, 0):
		c.problemf(name, "want degrees as a decimal number such as 32.0853, got %s", excerpt(raw))
		return 0, true, false
	case math.Abs(value) > bound:
		c.problemf(name, "want degrees from -%g to %g, got %s", bound, bound, excerpt(raw))
		return 0, true, false
	}
	return value, true, true
}

// Place is one place to look up, as a file gave it.
type Place struct {
	// Body is the place as a JSON object under the names of the wire format (placeId, name, address, cityText, phone,
	// location). Fields that this package does not know are kept: from JSON byte for byte and in their order, from CSV
	// as strings under the column's name.
	Body json.RawMessage

	// Offset is how many bytes of the whole input had been consumed when this place had been read, over all files. A
	// progress bar uses it as the progress when this place is done.
	Offset int64

	// Position is where the place starts in its file.
	Position Position

	// Restaurant is Body decoded and validated; its PlaceID and Name are never empty.
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
