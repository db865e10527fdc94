package wolt

import (
	"slices"

	"github.com/expediter-io/expediter/services/enricher/provider"
)

// gathered is what the calls of one search have brought so far.
type gathered struct {
	at     map[string]int // index in venues by venue ID
	broken int
	cities *cityList
	config *Config
	near   city
	venues []provider.Venue
}

// add takes in what one call brought. A venue that is there already gains the new
// name as an alias: it is the same venue in another language.
func (g *gathered) add(f found) {
	g.broken += f.broken

	for _, h := range f.hits {
		at, ok := g.at[h.venue.ID]
		if !ok {
			g.at[h.venue.ID] = len(g.venues)
			g.venues = append(g.venues, g.linked(h))

			continue
		}

		known := &g.venues[at]
		if h.venue.Name != known.Name && !slices.Contains(known.Aliases, h.venue.Name) {
			known.Aliases = append(known.Aliases, h.venue.Name)
		}
	}
}

// linked gives a venue its page, in the city that it is nearest to.
func (g *gathered) linked(h hit) provider.Venue {
	in := g.near
	if h.venue.Location != nil {
		if nearest, ok := g.cities.nearest(*h.venue.Location, h.country); ok {
			in = nearest
		}
	}

	h.venue.URL = link(in, h.slug)

	if h.venue.City == "" { // Often left empty by the search.
		h.venue.City = in.name
	}
	return h.venue
}
