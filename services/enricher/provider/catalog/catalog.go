package catalog

import (
	"sync"

	"github.com/expediter-io/expediter/services/enricher/provider"
)

var _ provider.Provider = (*Catalog)(nil)

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

// Len is the number of venues.
func (c *Catalog) Len() int { return len(c.venues) }

// Name is the configured name.
func (c *Catalog) Name() string { return c.config.Name }

func (c *Catalog) fail(kind provider.Kind, detail string, cause error) *provider.Error {
	return &provider.Error{Cause: cause, Detail: detail, Kind: kind, Provider: c.config.Name}
}
