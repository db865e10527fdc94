// Package catalog finds delivery links in a local file of venues.
//
// # Files
//
// [Open] takes JSON, JSON Lines, or CSV with a header, in UTF-8. Other fields and columns are ignored:
//
//	id       wanted, unique
//	name     wanted
//	address
//	aliases  a list, or a text parted by | or ;
//	city
//	lat      with lng, or neither; in JSON also in an object "location"
//	lng
//	phone
//	url      http or https
//
// A file with rows that cannot be used is refused, and the [LoadError] names every such row with its line.
//
// # Search
//
// The file is loaded once, into an index in memory: the words of the names, telephone numbers, house numbers with their streets, and
// squares of the map of about 500 m. The words are found by their letters, their meaning, and their consonants, which are alike across
// scripts, also when one letter differs; then each is compared as the matcher compares it. A search adds up what the place and each
// venue have in common, about as the matcher does, and returns the best 50. It leaves out no venue that has anything in common. On
// 100,000 venues that takes a few milliseconds, on one core. The index takes some 1,700 bytes and 60 µs for each venue.
//
// The search is meant to miss no venue. The matcher decides which of the candidates is the place.
package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

var _ provider.Provider = (*Catalog)(nil)

// Catalog is a list of venues that can be searched. It never changes, and is safe for
// concurrent use.
type Catalog struct {
	index   *index
	name    string
	tallies sync.Pool
	venues  []provider.Venue
}

// Name is the provider's name, as given to Open or Read.
func (c *Catalog) Name() string { return c.name }

// Open loads a file as the provider of a name. It reports all rows that cannot be used at once, as a [*LoadError]. A file without
// venues is refused: every place would be NOT_FOUND.
func Open(path, name string) (*Catalog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the catalogue: %w", err)
	}
	defer file.Close()
	return load(name, rows.Read(context.Background(), path, file, options)) //nolint:forbidigo // a file ends by itself
}

// Read loads a catalogue, as [Open] does, from a reader.
func Read(r io.Reader, name string) (*Catalog, error) {
	return load(name, rows.Read(context.Background(), "catalogue", r, options)) //nolint:forbidigo // a file ends by itself
}

// options are those of every read. maxRow bounds a row in bytes.
var options = rows.Options{Columns: []string{"id", "name"}, MaxBytes: maxRow}

func load(name string, records iter.Seq2[rows.Record, error]) (*Catalog, error) {
	var venues []provider.Venue
	var bad LoadError
	lines := map[string]int{} // by venue id
	for record, err := range records {
		var v provider.Venue
		var problems []string
		if broken, ok := errors.AsType[*rows.Error](err); ok {
			problems = []string{broken.Problem}
		} else if err != nil {
			return nil, fmt.Errorf("load the catalogue: %w", err)
		} else {
			v, problems = venueOf(record.Body)
		}
		if first, known := lines[v.ID]; known && v.ID != "" {
			problems = append(problems, fmt.Sprintf("the id %q is that of line %d as well", v.ID, first))
		} else {
			lines[v.ID] = record.Line
		}
		switch {
		case len(venues) == maxVenues:
			return nil, fmt.Errorf("load the catalogue: it has more than %d venues", maxVenues)
		case len(problems) == 0:
			venues = append(venues, v)
		case len(bad.Rows) < maxRowErrors:
			bad.Rows = append(bad.Rows, fmt.Sprintf("line %d: %s", record.Line, strings.Join(problems, "; ")))
		default:
			bad.More++
		}
	}
	switch {
	case len(bad.Rows) > 0:
		return nil, &bad
	case len(venues) == 0:
		return nil, errors.New("load the catalogue: it has no venues")
	}
	c := &Catalog{index: newIndex(venues), name: name, venues: venues}
	c.tallies.New = func() any { return &tally{hitOf: make([]int32, len(venues)), seen: make([]bool, len(c.index.words))} }
	return c, nil
}

// maxVenues bounds a catalogue. Its index takes some kilobytes for each.
const maxVenues = 1_000_000

// maxRowErrors bounds the bad rows that are named. The others are counted.
const maxRowErrors = 1000

// LoadError is returned when rows cannot be used.
type LoadError struct {
	// More is the number of bad rows after the first 1000.
	More int

	// Rows has the line and the mistakes of each of the first 1000 bad rows.
	Rows []string
}

// Error has a line for each bad row.
func (e *LoadError) Error() string {
	text := fmt.Sprintf("%d of the rows cannot be used:\n  %s", len(e.Rows)+e.More, strings.Join(e.Rows, "\n  "))
	if e.More > 0 {
		text += fmt.Sprintf("\n  and %d more", e.More)
	}
	return text
}

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
	v.URL = cmp.Or(v.URL, noURL+url.PathEscape(v.ID))
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
