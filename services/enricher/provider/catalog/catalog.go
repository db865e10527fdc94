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
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

var _ provider.Provider = (*Catalog)(nil)

// The defaults of a Config.
const (
	defaultMaxBytes  = 256 << 20
	defaultMaxVenues = 1_000_000
	defaultName      = "catalog"
)

// Config sets up a [Catalog]. The zero value is usable.
type Config struct {
	// MaxBytes bounds the size of a file. Defaults to 256 MiB.
	MaxBytes int64

	// MaxVenues bounds the number of rows, good and bad. Defaults to 1,000,000.
	MaxVenues int

	// Name is the provider's name. Defaults to catalog.
	Name string
}

func (c Config) withDefaults() Config {
	c.MaxBytes = cmp.Or(c.MaxBytes, defaultMaxBytes)
	c.MaxVenues = cmp.Or(c.MaxVenues, defaultMaxVenues)
	c.Name = cmp.Or(c.Name, defaultName)
	return c
}

// Catalog is a list of venues that can be searched. It never changes, and is safe for
// concurrent use.
type Catalog struct {
	config  Config
	index   *index
	tallies sync.Pool
	venues  []provider.Venue
}

func newCatalog(config Config, venues []provider.Venue) *Catalog {
	c := &Catalog{config: config, index: newIndex(venues), venues: venues}
	c.tallies.New = func() any { return &tally{hitOf: make([]int32, len(venues))} }
	return c
}

// Name is the configured name.
func (c *Catalog) Name() string { return c.config.Name }

func (c *Catalog) fail(kind provider.Kind, detail string, cause error) *provider.Error {
	return &provider.Error{Cause: cause, Detail: detail, Kind: kind, Provider: c.config.Name}
}

// Open loads a file. It reports all rows that cannot be used at once, as a [*LoadError].
func Open(path string, config Config) (*Catalog, error) {
	file, err := os.Open(path) //nolint:gosec // The operator names the file.
	if err != nil {
		return nil, fmt.Errorf("open the catalogue: %w", err)
	}
	defer file.Close() //nolint:errcheck // It is only read.
	c, err := Read(file, config)
	if err != nil {
		return nil, fmt.Errorf("load the catalogue %s: %w", path, err)
	}
	return c, nil
}

// Read loads a catalogue, as [Open] does, from a reader.
func Read(r io.Reader, config Config) (*Catalog, error) {
	config = config.withDefaults()
	data, err := io.ReadAll(io.LimitReader(r, config.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if int64(len(data)) > config.MaxBytes {
		return nil, fmt.Errorf("%w: the file is larger than the %d bytes of MaxBytes", ErrTooLarge, config.MaxBytes)
	}
	if len(bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrFormat)
	}
	b := builder{config: config, lines: make(map[string]int)}
	read := rows.Read(context.Background(), "catalogue", bytes.NewReader(data), rows.Options{ //nolint:forbidigo // it is in memory
		Columns: []string{string(colID), string(colName)}, MaxBytes: maxRow,
	})
	for record, err := range read {
		r := &row{fields: make(map[column]string), line: record.Line}
		if broken, ok := errors.AsType[*rows.Error](err); ok {
			r.refuse(broken.Problem)
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		} else {
			r.read(record.Body)
		}
		if err := b.add(r.venue(), r.line, r.problems); err != nil {
			return nil, err
		}
	}
	if len(b.bad.Rows) > 0 {
		return nil, &b.bad
	}
	return newCatalog(config, b.venues), nil
}

// builder collects the venues of a catalogue, and the problems of rows that cannot be used.
type builder struct {
	bad    LoadError
	config Config
	lines  map[string]int // by venue ID
	rows   int            // good and bad
	venues []provider.Venue
}

// add adds a venue, unless it has problems. An error ends the loading.
func (b *builder) add(v provider.Venue, line int, problems []string) error {
	b.rows++
	if b.rows > b.config.MaxVenues {
		return fmt.Errorf("%w: more than the %d of MaxVenues", ErrTooLarge, b.config.MaxVenues)
	}
	if first, ok := b.lines[v.ID]; ok && v.ID != "" {
		problems = append(problems, fmt.Sprintf("the id %q is that of line %d as well", v.ID, first))
	} else {
		b.lines[v.ID] = line
	}
	switch {
	case len(problems) == 0:
		b.venues = append(b.venues, v)
	case len(b.bad.Rows) < maxRowErrors:
		b.bad.Rows = append(b.bad.Rows, RowError{Line: line, Problems: problems})
	default:
		b.bad.More++
	}
	return nil
}

// ErrFormat is returned when a file is not JSON, JSON Lines or CSV, or has no column
// for the id or the name.
var ErrFormat = errors.New("not a file of venues")

// ErrTooLarge is returned when a file has more bytes or venues than are accepted.
var ErrTooLarge = errors.New("more venues than are accepted")

// maxRowErrors bounds the bad rows that are named. The others are counted.
const maxRowErrors = 1000

// RowError is the error of one row.
type RowError struct {
	// Line is the number of the line, from 1, on which the row starts.
	Line int

	// Problems are the mistakes of the row.
	Problems []string
}

// Error is one line.
func (e RowError) Error() string {
	return fmt.Sprintf("line %d: %s", e.Line, strings.Join(e.Problems, "; "))
}

// LoadError is returned when rows cannot be used. It names all of them, up to 1000.
type LoadError struct {
	// More is the number of bad rows after the first 1000.
	More int

	// Rows are the bad rows by line.
	Rows []RowError
}

// Error has a line for each bad row.
func (e *LoadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of the rows cannot be used:", len(e.Rows)+e.More)
	for _, row := range e.Rows {
		b.WriteString("\n  " + row.Error())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n  and %d more", e.More)
	}
	return b.String()
}
