package catalog

import (
	"cmp"
	"sync"

	"github.com/expediter-io/expediter/services/enricher/provider"
)

var _ provider.Provider = (*Catalog)(nil)

// What a Config falls back to.
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
	c.tallies.New = func() any { return &tally{slot: make([]int32, len(venues))} }
	return c
}

// Name is the configured name.
func (c *Catalog) Name() string { return c.config.Name }

func (c *Catalog) fail(kind provider.Kind, detail string, cause error) *provider.Error {
	return &provider.Error{Cause: cause, Detail: detail, Kind: kind, Provider: c.config.Name}
}
