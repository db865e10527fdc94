package wolt

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// searchBody is the body of a call to the search.
type searchBody struct {
	Lat    float64 `json:"lat"`
	Lon    float64 `json:"lon"`
	Q      string  `json:"q"`
	Target string  `json:"target"`
}

// ask makes one call to the search.
func (c *Client) ask(ctx context.Context, q query, at match.Point) (found, error) {
	body, err := json.Marshal(searchBody{Lat: at.Lat, Lon: at.Lng, Q: q.text, Target: "venues"})
	if err != nil { // A position that is no number.
		return found{}, c.fail(provider.KindUnsupported, "the place's location cannot be sent", err)
	}

	var result found

	r := request{body: body, language: q.language, method: http.MethodPost, path: "/v1/pages/search"}
	err = c.call(ctx, r, func(answer []byte) error {
		decoded, err := decodeSearch(answer)

		switch {
		case errors.Is(err, errNoContent):
			return c.fail(provider.KindBlocked, "check the rate, whether Wolt expects a newer client, and whether the place is served at all", err)
		case err != nil:
			return c.fail(provider.KindMalformed, "the answer to the search cannot be read", err)
		}

		result = decoded
		return nil
	})
	return result, err
}

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
