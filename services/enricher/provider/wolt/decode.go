package wolt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// maxVenues bounds the venues that are taken from one answer, about a hundred in practice. Any further venues count
// as broken, because they were not read.
const maxVenues = 1000

// searchPage has the used members of an answer to a search.
type searchPage struct {
	Sections []struct {
		Items    *[]searchItem `json:"items"` // nil: missing, which is not an empty list
		Name     string        `json:"name"`
		Template string        `json:"template"`
	} `json:"sections"`
}

type searchItem struct {
	Template string          `json:"template"`
	Venue    json.RawMessage `json:"venue"`
}

type searchVenue struct {
	Address     string    `json:"address"`
	City        string    `json:"city"`
	Country     string    `json:"country"`
	ID          string    `json:"id"`
	Location    []float64 `json:"location"` // longitude first, as in GeoJSON
	Name        string    `json:"name"`
	ProductLine string    `json:"product_line"`
	Slug        string    `json:"slug"`
}

// hit is a venue in an answer, not yet linked to a page.
type hit struct {
	country string
	slug    string
	venue   provider.Venue
}

// found is the venues of an answer.
type found struct {
	// broken counts the venues that could not be read. One of them may be the wanted venue, so such an answer can show
	// that a venue exists, but never that there is none.
	broken int

	hits []hit
}

// decodeSearch reads the body of an answer to a search. The error has the reason why the body is no answer. No hits,
// no broken venue and a nil error is the genuine empty answer: there are sections, none of them is a no-content page,
// and at least one is a list of venues that is empty or has no restaurant.
func decodeSearch(body []byte) (found, error) {
	var page searchPage
	if err := decodeJSON(body, &page); err != nil {
		return found{}, err
	}
	var (
		result found
		listed bool // a list of venues was found, which may be empty
		seen   = make(map[string]bool)
	)
	for _, section := range page.Sections {
		ofVenues := venueTemplate(section.Template)
		switch {
		case noContent(section.Name), noContent(section.Template):
			return found{}, errNoContent
		case section.Items == nil && ofVenues:
			return found{}, fmt.Errorf("the section %q of venues has no items", section.Name)
		case section.Items == nil:
			continue
		}
		listed = listed || ofVenues
		for _, item := range *section.Items {
			listed = result.add(item, seen) || listed
		}
	}
	if !listed && result.broken == 0 {
		return found{}, errors.New("the answer has no sections, or none that lists venues")
	}
	return result, nil
}

// add adds an item, and reports whether it is a venue that can be read.
func (f *found) add(item searchItem, seen map[string]bool) bool {
	if len(item.Venue) == 0 || bytes.Equal(item.Venue, []byte("null")) {
		// A banner between the venues has a template of its own. An item with the template of a venue, or without a
		// template, should have a venue.
		if item.Template == "" || venueTemplate(item.Template) {
			f.broken++
		}
		return false
	}
	h, err := decodeVenue(item.Venue)
	if err != nil {
		f.broken++
		return false
	}
	switch {
	case seen[h.venue.ID] || !restaurant(h.venue.Kind):
	case len(f.hits) == maxVenues:
		f.broken++
	default:
		f.hits = append(f.hits, h)
	}
	seen[h.venue.ID] = true
	return true
}

func decodeVenue(raw json.RawMessage) (hit, error) {
	var v searchVenue
	if err := json.Unmarshal(raw, &v); err != nil {
		return hit{}, fmt.Errorf("decode venue: %w", err)
	}
	if v.ID == "" || strings.TrimSpace(v.Name) == "" || !safeSegment(v.Slug) {
		return hit{}, fmt.Errorf("venue %q lacks an id, a name or a usable slug", v.ID)
	}
	return hit{
		country: v.Country,
		slug:    v.Slug,
		venue: provider.Venue{
			ID:   v.ID,
			Kind: v.ProductLine,
			Place: match.Place{
				Address:  v.Address,
				City:     v.City,
				Location: point(v.Location),
				Name:     v.Name,
			},
		},
	}, nil
}

// point reads [longitude, latitude]. A point that is not on earth is no location, and neither is 0,0, which means
// that a field was not filled in.
func point(lonLat []float64) *match.Point {
	if len(lonLat) < 2 {
		return nil
	}
	lon, lat := lonLat[0], lonLat[1]
	if math.Abs(lon) > 180 || math.Abs(lat) > 90 || (lon == 0 && lat == 0) {
		return nil
	}
	return &match.Point{Lat: lat, Lng: lon}
}

// restaurant reports whether a product line is one of restaurants. A missing product line counts as one, because
// leaving out the venue could hide the place.
func restaurant(productLine string) bool {
	return productLine == "" || productLine == "restaurant"
}

func venueTemplate(template string) bool { return strings.HasPrefix(template, "venue") }

func noContent(name string) bool {
	return strings.Contains(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "no-content")
}

// decodeJSON reads one JSON value. Its error distinguishes a page from a truncated answer.
func decodeJSON(body []byte, into any) error {
	trimmed := bytes.TrimSpace(body)
	if len(trimmed) > 0 && trimmed[0] == '<' {
		return errors.New("the answer is a page of HTML or XML, not JSON")
	}
	if err := json.Unmarshal(trimmed, into); err != nil {
		return fmt.Errorf("decode answer of %d bytes: %w", len(body), err)
	}
	return nil
}

// maxSegment bounds one segment of the path of a link.
const maxSegment = 200

// link returns the address of the public page of a venue:
// https://wolt.com/{language}/{country}/{city}/restaurant/{slug}.
func link(in city, slug string) string {
	return linkBase + strings.Join([]string{
		url.PathEscape(strings.ToLower(in.country)),
		url.PathEscape(in.slug),
		"restaurant",
		url.PathEscape(slug),
	}, "/")
}

// safeSegment reports whether a slug from Wolt can be one segment of a link. Escaping handles slashes, but not dots,
// which would lead to another path.
func safeSegment(slug string) bool {
	return slug != "" && len(slug) <= maxSegment && strings.Trim(slug, ".") != "" &&
		!strings.ContainsFunc(slug, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' })
}
