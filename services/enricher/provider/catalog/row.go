package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// The bounds of a row's values, in bytes.
const (
	maxField = 4096
	maxID    = 256
	maxRow   = 256 << 10
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
func (r *row) refuse(problem string) {
	r.problems = append(r.problems, problem)
	r.unreadable = true
}

// set sets a field. It splits aliases in one text at | and ;.
func (r *row) set(c column, value string) {
	switch {
	case len(value) > maxField:
		r.problems = append(r.problems, fmt.Sprintf("the %s has %d bytes, more than %d", c, len(value), maxField))
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
		ID: f[colID],
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

// column is a field of a venue, and its name in files.
type column string

const (
	colAddress column = "address"
	colAliases column = "aliases"
	colCity    column = "city"
	colID      column = "id"
	colLat     column = "lat"
	colLng     column = "lng"
	colName    column = "name"
	colPhone   column = "phone"
	colURL     column = "url"
)

var columns = []column{colAddress, colAliases, colCity, colID, colLat, colLng, colName, colPhone, colURL}

// read reads the fields of an object, and of its object location.
func (r *row) read(object []byte) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		r.refuse("it is not a JSON object: " + err.Error())
		return
	}
	if fields == nil {
		r.refuse("it is not a JSON object: null")
		return
	}
	if location := fields["location"]; location != nil {
		var point map[string]json.RawMessage
		if json.Unmarshal(location, &point) != nil {
			r.problems = append(r.problems, "the location is not an object with lat and lng")
		}
		for _, c := range []column{colLat, colLng} {
			if value := point[string(c)]; value != nil {
				fields[string(c)] = value
			}
		}
	}
	for _, c := range columns {
		value := fields[string(c)]
		switch {
		case value == nil:
		case c == colAliases && value[0] == '[':
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
		return text, err
	case 'n':
		return "", nil
	case '[', '{', 't', 'f':
		return "", errors.New("neither a text nor a number")
	default:
		return string(value), nil
	}
}
