package catalog

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// The bounds of a row and its values, in bytes.
const (
	maxField = 4096
	maxID    = 256
	maxRow   = 256 << 10
)

// row is an object of a file. All mistakes in it are collected.
type row struct {
	fields   map[string]json.RawMessage
	problems []string
}

func (r *row) refusef(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// noURL begins the URL of a venue without one: an address that by definition does not exist (RFC 2606).
const noURL = "https://catalog.invalid/venues/"

// venueOf reads an object. Its venue is usable only when the object has no problems.
func venueOf(object []byte) (v provider.Venue, problems []string) {
	var r row
	err := json.Unmarshal(object, &r.fields)
	switch {
	case err != nil:
		r.refusef("it is not a JSON object: %v", err)
		return v, r.problems
	case r.fields == nil:
		return v, []string{"it is not a JSON object: null"}
	}
	v = provider.Venue{ID: r.text("id"), URL: r.text("url"), Place: match.Place{
		Address: r.text("address"), Aliases: r.aliases(), City: r.text("city"), Location: r.location(), Name: r.text("name"),
		Phone: r.text("phone"),
	}}
	if v.URL == "" {
		v.URL = noURL + url.PathEscape(v.ID)
	}
	r.check(v)
	return v, r.problems
}

// check refuses what a venue of a catalogue cannot have.
func (r *row) check(v provider.Venue) {
	switch {
	case v.ID == "":
		r.refusef("the id is missing")
	case len(v.ID) > maxID:
		r.refusef("the id has %d bytes, more than %d", len(v.ID), maxID)
	case strings.ContainsFunc(v.ID, unicode.IsControl):
		r.refusef("the id %q has control characters", v.ID)
	}
	if v.Name == "" {
		r.refusef("the name is missing")
	}
	if _, err := provider.ParseURL(v.URL); err != nil {
		r.refusef("the url %q: %v", v.URL, err)
	}
	if at := v.Location; at != nil && !(math.Abs(at.Lat) <= 90 && math.Abs(at.Lng) <= 180) { // also true for NaN
		r.refusef("latitude %g, longitude %g is no place on earth", at.Lat, at.Lng)
	}
}

// text returns a field that is a string, a number or null.
func (r *row) text(name string) string {
	value := r.fields[name]
	text := string(value)
	switch {
	case value == nil, text == "null":
		return ""
	case value[0] == '"':
		_ = json.Unmarshal(value, &text) // it is part of valid JSON
	case strings.IndexByte("[{tf", text[0]) >= 0:
		r.refusef("the %s is neither a text nor a number", name)
		return ""
	}
	if len(text) > maxField {
		r.refusef("the %s has %d bytes, more than %d", name, len(text), maxField)
		return ""
	}
	return clean(text)
}

// aliases reads a list, or one text parted by | or ;.
func (r *row) aliases() (aliases []string) {
	var list []string
	if value := r.fields["aliases"]; len(value) == 0 || value[0] != '[' {
		list = strings.FieldsFunc(r.text("aliases"), func(c rune) bool { return c == '|' || c == ';' })
	} else if len(value) > maxField {
		r.refusef("the aliases have %d bytes, more than %d", len(value), maxField)
	} else if json.Unmarshal(value, &list) != nil {
		r.refusef("the aliases are not a list of texts")
	}
	for _, alias := range list {
		if alias = clean(alias); alias != "" {
			aliases = append(aliases, alias)
		}
	}
	return aliases
}

// clean removes the characters that a spreadsheet or a page leaves around a value.
func clean(value string) string {
	return strings.TrimFunc(value, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\ufeff' })
}

// location reads latitude and longitude, of the object itself or of its object location. 0,0 counts as not filled in.
func (r *row) location() *match.Point {
	if nested := r.fields["location"]; nested != nil {
		var point map[string]json.RawMessage
		if json.Unmarshal(nested, &point) != nil {
			r.refusef("the location is not an object with lat and lng")
		}
		for _, name := range []string{"lat", "lng"} {
			if value := point[name]; value != nil {
				r.fields[name] = value
			}
		}
	}
	lat, lng := r.text("lat"), r.text("lng")
	if (lat == "") != (lng == "") {
		r.refusef("one of lat and lng is missing")
	}
	at := match.Point{Lat: r.degrees("lat", lat), Lng: r.degrees("lng", lng)}
	if at == (match.Point{}) {
		return nil
	}
	return &at
}

func (r *row) degrees(name, text string) float64 {
	if text == "" {
		return 0
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		r.refusef("the %s %q is not a number", name, text)
	}
	return value
}
