package wolt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

func TestSearchFindsVenuesWithTheirLinks(t *testing.T) {
	t.Parallel()
	server, client := setup(t)
	got := check.Must(client.Search(t.Context(), pizzaHouse))(t)
	want := []provider.Venue{
		{
			ID: "000000000000000000000001", Kind: "restaurant", URL: "https://wolt.com/en/isr/tel-aviv/restaurant/pizza-house",
			Place: match.Place{
				Address: "Dizengoff 50", City: "Tel Aviv", Location: &match.Point{Lat: 32.0801, Lng: 34.7801}, Name: "Pizza House",
			},
		},
		{
			ID: "000000000000000000000002", Kind: "restaurant", URL: "https://wolt.com/en/isr/tel-aviv/restaurant/pizza-prego",
			Place: match.Place{
				Address: "Ibn Gabirol 1", City: "Tel Aviv", Location: &match.Point{Lat: 32.0811, Lng: 34.7811}, Name: "Pizza Prego",
			},
		},
	}
	check.Equal(t, want, got)
	check.Equal(t, map[string]int{"Pizza House": 1}, server.Searches())
}

func TestSearchSendsTheDocumentedCall(t *testing.T) {
	t.Parallel()
	server, client := setup(t)
	check.OK(t, check.Err(client.Search(t.Context(), pizzaHouse)))
	calls := server.Calls()
	check.Require(t, len(calls) == 2 && calls[0].Path == "/v1/cities", "calls = %v, want the cities and one search", calls)
	search := calls[1]
	want := wolttest.Call{Lat: 32.08, Lon: 34.78, Path: "/v1/pages/search", Query: "Pizza House", Target: "venues"}
	check.Equal(t, want, search, cmpopts.IgnoreFields(wolttest.Call{}, "Header"))
	for name, value := range map[string]string{
		"App-Language": "en", "Client-Version": "1.16.125", "Content-Type": "application/json", "Platform": "Web",
		"User-Agent": "expediter-enricher/1", "W-Wolt-Session-Id": "no-analytics-consent",
	} {
		check.Same(t, fmt.Sprintf("header %s", name), search.Header.Get(name), value)
	}
	check.OK(t, uuid.Validate(search.Header.Get("X-Wolt-Web-Clientid")))
}

func TestSearchAnsweredWithNoVenues(t *testing.T) {
	t.Parallel()
	server, client := setup(t)
	got, err := client.Search(t.Context(), match.Place{Name: "Taizu", Location: &telAviv})
	check.Require(t, err == nil && len(got) == 0, "Search = %v, %v; want the genuine empty answer", got, err)
	n := len(server.Searches())
	check.That(t, n != 0, "nothing was searched")
}

func TestSearchFollowsThePlan(t *testing.T) {
	t.Parallel()
	place := match.Place{Name: "Moses Restaurant - Dizengoff", Aliases: []string{"מוזס"}, Location: &telAviv}
	tests := map[string]struct {
		maxCalls int
		want     []string // language and text
	}{
		"one call":  {1, []string{"en Moses Restaurant - Dizengoff"}},
		"two calls": {2, []string{"en Moses Restaurant - Dizengoff", "en Moses"}},
		"all": {9, []string{
			"en Moses Restaurant - Dizengoff", "en Moses", "he Moses Restaurant - Dizengoff", "he מוזס",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := setup(t, func(c *wolt.Config) { c.Confident, c.MaxCalls = never, test.maxCalls })
			check.OK(t, check.Err(client.Search(t.Context(), place)))
			check.Equal(t, test.want, asked(server))
		})
	}
}

func TestSearchStopsWhenConfident(t *testing.T) {
	t.Parallel()
	server, client := setup(t)
	place := match.Place{Name: "Restaurant Sushi Bar", Aliases: []string{"Sushi Bar"}, Location: &telAviv}
	check.OK(t, check.Err(client.Search(t.Context(), place)))
	// "Sushi Bar" never equals the name, so every query is asked.
	check.Same(t, "searches", len(asked(server)), 4)
	check.OK(t, check.Err(client.Search(t.Context(), match.Place{Name: "Sushi Bar", Location: &telAviv})))
	check.Same(t, "searches", len(asked(server)), 5)
}

func TestSearchGathersTheNamesOfAVenueInAllLanguages(t *testing.T) {
	t.Parallel()
	_, client := setup(t, func(c *wolt.Config) { c.Confident = never })
	got := check.Must(client.Search(t.Context(), pizzaHouse))(t)
	check.Require(t, len(got) == 2, "%d venues, want each once", len(got))
	check.Equal(t, []string{"פיצה האוס"}, got[0].Aliases)
}

func TestSearchWithoutLocation(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		city string
		want string // the city in the link, or empty when the place is unsupported
	}{
		"name":                {"Tel Aviv", "tel-aviv"},
		"slug":                {"tel-aviv", "tel-aviv"},
		"case and accents":    {"TÉL AVÍV", "tel-aviv"},
		"with its country":    {"Tel Aviv, Israel", "tel-aviv"},
		"none":                {"", ""},
		"unknown":             {"Atlantis", ""},
		"two cities have it":  {"Frankfurt", ""},
		"a longer name of it": {"Frankfurt an der Oder", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client := setup(t)
			got, err := client.Search(t.Context(), match.Place{Name: "Pizza House", City: test.city})
			if test.want == "" {
				check.That(t, provider.KindOf(err) == provider.KindUnsupported && !provider.Temporary(err) && got == nil,
					"Search = %v, %v; want a permanent unsupported", got, err)
				return
			}
			check.Require(t, err == nil && len(got) != 0, "Search = %v, %v", got, err)
			want := "https://wolt.com/en/isr/" + test.want + "/restaurant/"
			check.That(t, strings.HasPrefix(got[0].URL, want), "URL = %s, want %s...", got[0].URL, want)
		})
	}
}

func TestSearchRefusesPlacesThatCannotBeAskedFor(t *testing.T) {
	t.Parallel()
	tests := map[string]match.Place{
		"no name":       {Location: &telAviv},
		"blank name":    {Name: " \t\u200f", Location: &telAviv},
		"off the earth": {Name: "Pizza House", Location: &match.Point{Lat: 91}},
		"not a number":  {Name: "Pizza House", Location: &match.Point{Lng: nan()}},
	}
	for name, place := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := setup(t)
			got, err := client.Search(t.Context(), place)
			check.That(t, provider.KindOf(err) == provider.KindUnsupported && got == nil, "Search = %v, %v; want unsupported", got, err)
			check.Same(t, "searches", len(asked(server)), 0)
		})
	}
}

func TestLinkUsesTheNearestCityOfTheVenuesCountry(t *testing.T) {
	t.Parallel()
	cities := []wolttest.City{
		{Country: "EST", Lat: 59.4370, Lon: 24.7536, Name: "Tallinn", Slug: "tallinn"},
		{Country: "FIN", Lat: 60.1699, Lon: 24.9384, Name: "Helsinki", Slug: "helsinki"},
		{Country: "FIN", Lat: 61.4978, Lon: 23.7610, Name: "Tampere", Slug: "tampere"},
	}
	_, client := start(t, wolttest.Config{Cities: cities, Venues: []wolttest.Venue{
		{ID: "a", Slug: "a", Name: "Kala A", Country: "FIN", Lat: 59.7, Lon: 24.8},
		{ID: "b", Slug: "b b", Name: "Kala B", Lat: 59.7, Lon: 24.8},
		{ID: "c", Slug: "c/c", Name: "Kala C", Lat: 59.7, Lon: 24.8},
		{ID: "d", Slug: "d", Name: "Kala D"},
	}})
	got := check.Must(client.Search(t.Context(), match.Place{Name: "Kala A", Location: &match.Point{Lat: 59.7, Lng: 24.8}}))(t)
	want := map[string]string{
		"a": "https://wolt.com/en/fin/helsinki/restaurant/a",    // its country, although Tallinn is nearer
		"c": "https://wolt.com/en/est/tallinn/restaurant/c%2Fc", // never a path of its own
		"d": "https://wolt.com/en/est/tallinn/restaurant/d",     // no position: the city searched in
	}
	links := make(map[string]string)
	for _, v := range got {
		links[v.ID] = v.URL
	}
	check.Equal(t, want, links)
}

// asked lists the searches as language and text.
func asked(server *wolttest.Server) []string {
	var list []string
	for _, call := range server.Calls() {
		if call.Path == "/v1/pages/search" {
			list = append(list, call.Header.Get("App-Language")+" "+call.Query)
		}
	}
	return list
}
