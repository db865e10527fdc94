package wolt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// city is a city in which Wolt delivers.
type city struct {
	country  string // ISO 3166-1 alpha-3, upper case
	location match.Point
	name     string
	slug     string
}

// cityList is a decoded list of cities. It is not changed once it is built.
type cityList struct {
	byName map[string][]int // folded name or slug → indexes
	cities []city
}

type citiesPage struct {
	Results []json.RawMessage `json:"results"`
}

type cityRecord struct {
	Country  string `json:"country_code_alpha3"`
	Location struct {
		Coordinates []float64 `json:"coordinates"` // longitude first
	} `json:"location"`
	Name string `json:"name"`
	Slug string `json:"slug"`
}

// decodeCities reads the list of cities. It leaves out cities with too little data for a link or a position.
func decodeCities(body []byte, limit int) (*cityList, error) {
	var page citiesPage
	if err := decodeJSON(body, &page); err != nil {
		return nil, err
	}
	if len(page.Results) > limit {
		return nil, fmt.Errorf("the list has %d cities, more than %d", len(page.Results), limit)
	}
	list := &cityList{byName: make(map[string][]int)}
	for _, raw := range page.Results {
		var r cityRecord
		if json.Unmarshal(raw, &r) != nil {
			continue
		}
		at := point(r.Location.Coordinates)
		if at == nil || !safeSegment(r.Slug) || !alpha3(r.Country) {
			continue
		}
		list.add(city{country: strings.ToUpper(r.Country), location: *at, name: r.Name, slug: r.Slug})
	}
	if len(list.cities) == 0 {
		return nil, errors.New("the answer lists no city with a slug, a country and a position")
	}
	return list, nil
}

func (l *cityList) add(c city) {
	at := len(l.cities)
	l.cities = append(l.cities, c)
	names := map[string]bool{foldCity(c.name): true, foldCity(c.slug): true}
	for name := range names {
		if name != "" {
			l.byName[name] = append(l.byName[name], at)
		}
	}
}

// named finds the city with a name or slug, without the text after a comma, a slash or a bracket. It guesses no
// further, and finds no city for a name of several cities: a search in a wrong city would find no venue, which would
// count as an answer.
func (l *cityList) named(name string) (city, bool) {
	if end := strings.IndexAny(name, ",/(|"); end > 0 {
		name = name[:end]
	}
	at := l.byName[foldCity(name)]
	if len(at) != 1 {
		return city{}, false
	}
	return l.cities[at[0]], true
}

// nearest finds the city nearest to a point, in the given country (alpha-3) if
// that has any.
func (l *cityList) nearest(to match.Point, country string) city {
	const abroad = 1e9 // farther than any place on earth
	best, least := city{}, math.Inf(1)
	for _, c := range l.cities {
		distance := match.Metres(to, c.location)
		if !strings.EqualFold(c.country, country) {
			distance += abroad
		}
		if distance < least {
			best, least = c, distance
		}
	}
	return best
}

func alpha3(country string) bool {
	return len(country) == 3 && strings.Trim(strings.ToLower(country), "abcdefghijklmnopqrstuvwxyz") == ""
}

// foldCity returns the name or slug of a city in the form for look-ups: its folded words with single spaces.
func foldCity(name string) string { return strings.Join(provider.Words(name), " ") }

// refreshPause is the time for which a list that could not be refreshed is used before the next attempt.
const refreshPause = time.Minute

// cityStore keeps the list of cities. One caller at a time fetches the list. The others wait for it, each no longer
// than its own context.
type cityStore struct {
	fetching chan struct{} // holds a token while a search fetches the cities

	mu      sync.Mutex
	fresh   time.Time // until when list needs no refresh
	list    *cityList // nil until first fetched
	failure error     // of the last attempt, nil when it succeeded
	tried   time.Time // when the last attempt ended
}

// knownCities returns the list of cities. It fetches the list when there is none or it is old: one call in citiesTTL.
// It keeps using a list that cannot be refreshed.
func (c *Client) knownCities(ctx context.Context) (*cityList, error) {
	store := c.cities
	if list, ok := store.current(); ok {
		return list, nil
	}
	asked := time.Now()
	select {
	case store.fetching <- struct{}{}:
		defer func() { <-store.fetching }()
	case <-ctx.Done():
		return nil, c.ended(ctx)
	}
	if list, ok := store.current(); ok {
		return list, nil
	}
	if err := store.failedSince(asked); err != nil {
		return nil, err
	}
	list, err := c.fetchCities(ctx)
	if ctx.Err() != nil && err != nil {
		return nil, err // ended by its caller, so no failure for the others
	}
	return store.settle(c, list, err)
}

func (c *Client) fetchCities(ctx context.Context) (*cityList, error) {
	var list *cityList
	r := request{language: languages[0], method: http.MethodGet, path: "/v1/cities"}
	err := c.call(ctx, r, func(body []byte) error {
		decoded, err := decodeCities(body, maxCities)
		if err != nil {
			return c.fail(provider.KindMalformed, "the list of cities cannot be read", err)
		}
		list = decoded
		return nil
	})
	return list, err
}

func (s *cityStore) current() (*cityList, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list, s.list != nil && time.Now().Before(s.fresh)
}

// failedSince returns the error of an attempt that ended after asked, which is also the error of every caller that waited
// for it. It is nil when the attempt's caller gave up.
func (s *cityStore) failedSince(asked time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil || !s.tried.After(asked) {
		return nil
	}
	return s.failure
}

// settle stores the outcome of a fetch, and returns the caller's result.
func (s *cityStore) settle(c *Client, list *cityList, err error) (*cityList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.failure, s.tried = err, now
	switch {
	case err == nil:
		s.list, s.fresh = list, now.Add(citiesTTL)
		return list, nil
	case s.list != nil:
		s.fresh = now.Add(refreshPause)
		c.config.Logger.Warn("list of cities could not be refreshed, the old one is used",
			slog.String("provider", Name), slog.Any("error", err))
		return s.list, nil
	default:
		return nil, err
	}
}
