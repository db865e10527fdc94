package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// The bounds of a row's values, in bytes.
const (
	maxField = 4096
	maxID    = 256
)

// row is a row of a file before it is checked.
type row struct {
	aliases    []string
	fields     map[column]string
	line       int
	problems   []string // its mistakes
	unreadable bool     // its fields are unknown, so they do not count as missing
}

// refuse marks a row as unreadable, with the problem.
func (r *row) refuse(problem string) *row {
	r.problems = append(r.problems, problem)
	r.unreadable = true
	return r
}

// set sets a field. It splits aliases in one text at | and ;.
func (r *row) set(c column, value string) {
	switch {
	case len(value) > maxField:
		r.problems = append(r.problems, fmt.Sprintf("the %s has %d bytes, more than %d", c, len(value), maxField))
	case !utf8.ValidString(value):
		r.problems = append(r.problems, fmt.Sprintf("the %s is not UTF-8", c))
	case c == colAliases:
		r.addAliases(strings.FieldsFunc(value, func(r rune) bool { return r == '|' || r == ';' })...)
	default:
		r.fields[c] = clean(value)
	}
}

func (r *row) addAliases(aliases ...string) {
	for _, alias := range aliases {
		if alias = clean(alias); alias != "" {
			r.aliases = append(r.aliases, alias)
		}
	}
}

// clean removes the characters that a spreadsheet or a page leaves around a value.
func clean(value string) string {
	return strings.TrimFunc(value, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\ufeff'
	})
}

// noURL begins the URL of a venue without one: an address that by definition does not exist (RFC 2606).
const noURL = "https://catalog.invalid/venues/"

// venue checks a row and returns its venue, which is usable only when the row has no problems afterwards.
func (r *row) venue() provider.Venue {
	f := r.fields
	v := provider.Venue{
		ID:   f[colID],
		Kind: f[colKind],
		Place: match.Place{
			Address: f[colAddress], Aliases: r.aliases, City: f[colCity], Location: r.location(), Name: f[colName], Phone: f[colPhone],
		},
		URL: f[colURL],
	}
	if v.URL == "" {
		v.URL = noURL + url.PathEscape(v.ID)
	}
	if !r.unreadable {
		r.problems = append(r.problems, problems(v)...)
	}
	return v
}

// problems returns the reasons why a venue cannot be in a catalogue.
func problems(v provider.Venue) []string {
	var list []string
	switch {
	case v.ID == "":
		list = append(list, "the id is missing")
	case len(v.ID) > maxID:
		list = append(list, fmt.Sprintf("the id has %d bytes, more than %d", len(v.ID), maxID))
	case strings.ContainsFunc(v.ID, unicode.IsControl):
		list = append(list, fmt.Sprintf("the id %q has control characters", v.ID))
	}
	if strings.TrimSpace(v.Name) == "" {
		list = append(list, "the name is missing")
	}
	if _, err := provider.ParseURL(v.URL); err != nil {
		list = append(list, fmt.Sprintf("the url %q: %v", v.URL, err))
	}
	if at := v.Location; at != nil && (math.IsNaN(at.Lat+at.Lng) || math.Abs(at.Lat) > 90 || math.Abs(at.Lng) > 180) {
		list = append(list, fmt.Sprintf("latitude %g, longitude %g is no place on earth", at.Lat, at.Lng))
	}
	return list
}

// location reads latitude and longitude. 0,0 counts as not filled in.
func (r *row) location() *match.Point {
	lat, okLat := r.degrees(colLat)
	lng, okLng := r.degrees(colLng)
	if (r.fields[colLat] == "") != (r.fields[colLng] == "") {
		r.problems = append(r.problems, "one of lat and lng is missing")
	}
	if !okLat || !okLng || (lat == 0 && lng == 0) {
		return nil
	}
	return &match.Point{Lat: lat, Lng: lng}
}

func (r *row) degrees(c column) (float64, bool) {
	text := r.fields[c]
	if text == "" {
		return 0, false
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(value, 0) || math.IsNaN(value) {
		r.problems = append(r.problems, fmt.Sprintf("the %s %q is not a number", c, text))
		return 0, false
	}
	return value, true
}

// column is a field of a venue, under any of its names in files.
type column string

const (
	colAddress column = "address"
	colAliases column = "aliases"
	colCity    column = "city"
	colID      column = "id"
	colKind    column = "kind"
	colLat     column = "lat"
	colLng     column = "lng"
	colName    column = "name"
	colPhone   column = "phone"
	colURL     column = "url"
)

// columnNames are the names under which a field is accepted: lower case, letters
// and digits only.
var columnNames = map[string]column{
	"addr": colAddress, "address": colAddress, "formattedaddress": colAddress, "street": colAddress, "streetaddress": colAddress,
	"alias": colAliases, "aliases": colAliases, "alternatenames": colAliases, "othernames": colAliases,
	"city": colCity, "citytext": colCity, "locality": colCity, "town": colCity,
	"id": colID, "placeid": colID, "venueid": colID,
	"kind": colKind, "productline": colKind,
	"lat": colLat, "latitude": colLat,
	"lng": colLng, "lon": colLng, "long": colLng, "longitude": colLng,
	"name": colName, "title": colName, "venue": colName, "venuename": colName,
	"phone": colPhone, "phonenumber": colPhone, "tel": colPhone, "telephone": colPhone,
	"link": colURL, "url": colURL,
}

// columnOf returns the field that a header or key names, "" for any other name.
func columnOf(name string) column {
	return columnNames[strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)]
}

// header maps the columns of a CSV file. It requires an id and a name, and permits no field twice.
func header(names []string) ([]column, error) {
	columns := make([]column, len(names))
	for i, name := range names {
		columns[i] = columnOf(name)
		if columns[i] == "" {
			continue
		}
		if first := slices.Index(columns[:i], columns[i]); first >= 0 {
			return nil, fmt.Errorf("%w: the columns %q and %q both are the %s", ErrFormat, names[first], name, columns[i])
		}
	}
	for _, needed := range []column{colID, colName} {
		if !slices.Contains(columns, needed) {
			return nil, fmt.Errorf("%w: no column is the %s; the first line has %q", ErrFormat, needed, names)
		}
	}
	return columns, nil
}

// jsonArray reads an array of objects.
func jsonArray(data []byte) iter.Seq2[*row, error] {
	return func(yield func(*row, error) bool) {
		lines := lineCounter{data: data}
		decoder := json.NewDecoder(bytes.NewReader(data))
		if _, err := decoder.Token(); err != nil { // The bracket.
			yield(nil, fmt.Errorf("%w: %w", ErrFormat, err))
			return
		}
		for decoder.More() {
			var object json.RawMessage
			err := decoder.Decode(&object)
			offset := int(decoder.InputOffset())
			if err != nil {
				yield(nil, fmt.Errorf("%w: line %d: %w", ErrFormat, lines.at(offset), err))
				return
			}
			if !yield(jsonRow(object, lines.at(offset-len(object))), nil) {
				return
			}
		}
		if _, err := decoder.Token(); err != nil {
			yield(nil, fmt.Errorf("%w: the array has no end: %w", ErrFormat, err))
		} else if rest := bytes.TrimSpace(data[decoder.InputOffset():]); len(rest) > 0 {
			yield(nil, fmt.Errorf("%w: line %d: something follows the array", ErrFormat, lines.at(int(decoder.InputOffset()))))
		}
	}
}

// jsonLines reads an object from each line. A line without an object does not affect the others.
func jsonLines(data []byte) iter.Seq2[*row, error] {
	return func(yield func(*row, error) bool) {
		line := 0
		for text := range bytes.Lines(data) {
			line++
			if text = bytes.TrimSpace(text); len(text) > 0 && !yield(jsonRow(text, line), nil) {
				return
			}
		}
	}
}

// jsonRow reads one object.
func jsonRow(object []byte, line int) *row {
	r := &row{fields: make(map[column]string), line: line}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil || fields == nil {
		return r.refuse("it is not a JSON object: " + reason(err))
	}
	r.setAll(fields, true)
	return r
}

func reason(err error) string {
	if err == nil {
		return "null"
	}
	return err.Error()
}

// setAll sets the fields of an object, and of its object location.
func (r *row) setAll(fields map[string]json.RawMessage, outermost bool) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		switch c := columnOf(name); {
		case outermost && (name == "location" || name == "geo"):
			r.setLocation(value)
		case c == "":
		case r.fields[c] != "":
			r.problems = append(r.problems, fmt.Sprintf("the %s is given twice", c))
		case c == colAliases && bytes.HasPrefix(value, []byte("[")):
			r.setAliases(value)
		default:
			text, err := scalar(value)
			if err != nil {
				r.problems = append(r.problems, fmt.Sprintf("the %s is %v", c, err))
			}
			r.set(c, text)
		}
	}
}

// setLocation reads {"lat": ..., "lng": ...}. It ignores other shapes.
func (r *row) setLocation(value json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) != nil {
		r.problems = append(r.problems, "the location is not an object with lat and lng")
		return
	}
	for name := range fields {
		if c := columnOf(name); c != colLat && c != colLng {
			delete(fields, name)
		}
	}
	r.setAll(fields, false)
}

func (r *row) setAliases(value json.RawMessage) {
	var list []string
	if json.Unmarshal(value, &list) != nil {
		r.problems = append(r.problems, "the aliases are not a list of texts")
	}
	if len(value) > maxField {
		r.problems = append(r.problems, fmt.Sprintf("the aliases have %d bytes, more than %d", len(value), maxField))
		return
	}
	r.addAliases(list...)
}

// scalar returns the text of a string, a number or null.
func scalar(value json.RawMessage) (string, error) {
	switch value[0] {
	case '"':
		var text string
		err := json.Unmarshal(value, &text)
		return text, err //nolint:wrapcheck // Not reached: the object was parsed as a whole.
	case 'n':
		return "", nil
	case '[', '{', 't', 'f':
		return "", errors.New("neither a text nor a number")
	default:
		return string(value), nil
	}
}
