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
// The file is loaded once, into an index in memory: words of the names, parts of their consonants (which are alike
// across scripts and misspellings), telephone numbers, house numbers with their streets, and squares of the map of
// about 500 m. A search weighs the keys that a place shares with each venue by their rarity, and returns the best 50.
// On 100,000 venues that takes one to four milliseconds, on one core. Building the index costs some 40 µs for each
// venue.
//
// The search is meant to miss no venue. The matcher decides which of the candidates is the place.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync"

	"github.com/expediter-io/expediter/internal/rows"
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

func newCatalog(name string, venues []provider.Venue) *Catalog {
	c := &Catalog{index: newIndex(venues), name: name, venues: venues}
	c.tallies.New = func() any { return &tally{hitOf: make([]int32, len(venues))} }
	return c
}

// Name is the provider's name, as given to Open or Read.
func (c *Catalog) Name() string { return c.name }

// Open loads a file as the provider of a name. It reports all rows that cannot be used at once, as a [*LoadError]. A file without
// venues is refused: every place would be NOT_FOUND.
func Open(path, name string) (*Catalog, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names the file; "-" is one as well
	if err != nil {
		return nil, fmt.Errorf("open the catalogue: %w", err)
	}
	defer file.Close()                                                      //nolint:errcheck // it is only read
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
	return newCatalog(name, venues), nil
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
