package input

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// record is one undecoded place.
type record struct {
	city     string // default city of the file
	end      int64  // offset after the record, over all files
	fields   []field
	position Position
	raw      json.RawMessage // the object as it was written; nil from CSV
}

// place checks the record and builds the place, or says everything that is wrong with it.
func (rec record) place() (Place, *RowError) {
	known := columns(func(i int) string { return rec.fields[i].name }, len(rec.fields))
	if _, given := known[fieldLocation]; given { // then a pair of columns is something else, and passed through
		delete(known, fieldLat)
		delete(known, fieldLng)
	}
	check := checker{rec: rec, known: known}
	place := Place{
		Address:  check.text(fieldAddress, false, false),
		City:     check.text(fieldCity, false, false),
		ID:       check.text(fieldID, true, true),
		Location: check.location(),
		Name:     check.text(fieldName, true, false),
		Offset:   rec.end,
		Phone:    check.text(fieldPhone, false, true),
		Position: rec.position,
	}
	if len(check.problems) > 0 {
		return Place{}, &RowError{Position: rec.position, Fields: check.problems}
	}
	if place.City == "" {
		place.City = rec.city
	}
	place.Body = rec.body(known, place)
	return place, nil
}

// body returns the object as it was written when it already uses the wire names, and builds it otherwise.
func (rec record) body(known map[string]int, place Place) json.RawMessage {
	if rec.raw != nil && rec.canonical(known, place) {
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
	out.taken[fieldLocation] = place.Location != nil
	for i, f := range rec.fields {
		out.member(f, roles[i], place)
	}
	if _, given := known[fieldCity]; place.City != "" && (!given || !out.wrote[fieldCity]) {
		out.put(fieldCity, quote(place.City))
	}
	return out.close()
}

func (rec record) canonical(known map[string]int, place Place) bool {
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
	if i, given := known[fieldLocation]; given && place.Location != nil && !plainPoint(rec.fields[i].value) {
		return false
	}
	i, given := known[fieldCity]
	return place.City == "" || given && !isNull(rec.fields[i].value) && string(rec.fields[i].value) != `""`
}

// objectWriter writes a JSON object member by member.
type objectWriter struct {
	buf   bytes.Buffer
	taken map[string]bool // names that only a known field may use
	wrote map[string]bool
}

func (w *objectWriter) member(f field, role string, place Place) {
	switch role {
	case "":
		if !w.taken[f.name] && !w.wrote[f.name] {
			w.put(f.name, f.value)
		}
	case fieldLat, fieldLng, fieldLocation:
		if place.Location != nil && !w.wrote[fieldLocation] {
			point, _ := json.Marshal(place.Location) //nolint:errchkjson // two finite numbers
			w.put(fieldLocation, point)
		}
	default:
		if text := roleText(place, role); text != "" && !w.wrote[role] {
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

func roleText(place Place, role string) string {
	switch role {
	case fieldAddress:
		return place.Address
	case fieldCity:
		return place.City
	case fieldID:
		return place.ID
	case fieldName:
		return place.Name
	case fieldPhone:
		return place.Phone
	}
	return ""
}

// checker collects what is wrong with a record.
type checker struct {
	known    map[string]int
	problems []FieldError
	rec      record
}

func (c *checker) problem(name, format string, args ...any) {
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
		c.problem(name, "not valid UTF-8; save the file as UTF-8")
		return ""
	case isString(raw):
		_ = json.Unmarshal(raw, &text) //nolint:errcheck // the decoder has accepted it as a string
		text = strings.TrimSpace(text)
	case number && isNumber(raw):
		text = string(raw)
	default:
		c.problem(name, "want text, got %s", excerpt(raw))
		return ""
	}
	if text == "" && required {
		c.problem(name, "missing")
	}
	return text
}

// location reads {"lat":..,"lng":..} or a pair of columns.
func (c *checker) location() *Point {
	latRaw, lngRaw := c.value(fieldLat), c.value(fieldLng)
	if raw := c.value(fieldLocation); raw != nil {
		members, err := parseObject(raw)
		if err != nil {
			c.problem(fieldLocation, "want an object with lat and lng, got %s", excerpt(raw))
			return nil
		}
		inner := checker{rec: record{fields: members}, known: columns(func(i int) string { return members[i].name }, len(members))}
		latRaw, lngRaw = inner.value(fieldLat), inner.value(fieldLng)
		if latRaw == nil && lngRaw == nil {
			c.problem(fieldLocation, "want lat and lng, got %s", excerpt(raw))
			return nil
		}
	}
	latText, latGiven, latOK := c.degrees(fieldLat, latRaw, 90)
	lngText, lngGiven, lngOK := c.degrees(fieldLng, lngRaw, 180)
	switch {
	case !latOK || !lngOK || !latGiven && !lngGiven:
		return nil
	case !latGiven:
		c.problem(fieldLat, "missing, though the longitude is given")
		return nil
	case !lngGiven:
		c.problem(fieldLng, "missing, though the latitude is given")
		return nil
	}
	return &Point{Lat: latText, Lng: lngText}
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
		c.problem(name, "want degrees as a decimal number such as 32.0853, got %s", excerpt(raw))
		return 0, true, false
	case math.Abs(value) > bound:
		c.problem(name, "want degrees from -%g to %g, got %s", bound, bound, excerpt(raw))
		return 0, true, false
	}
	return value, true, true
}
