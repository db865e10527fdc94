package wolt

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

const goodVenue = `{"venue":{"id":"1","name":"A","slug":"a","product_line":"restaurant","location":[34.7,32.1]}}`

func TestDecodeSearch(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body   string
		hits   int
		broken int
		fails  bool
	}{
		"one venue":                     {`{"sections":[{"items":[` + goodVenue + `]}]}`, 1, 0, false},
		"the same in two sections":      {`{"sections":[{"items":[` + goodVenue + `]},{"items":[` + goodVenue + `]}]}`, 1, 0, false},
		"an empty list of venues":       {`{"sections":[{"template":"venue-vertical-list","items":[]}]}`, 0, 0, false},
		"only a shop":                   {`{"sections":[{"items":[{"venue":{"id":"1","name":"A","slug":"a","product_line":"retail"}}]}]}`, 0, 0, false},
		"no product line":               {`{"sections":[{"items":[{"venue":{"id":"1","name":"A","slug":"a"}}]}]}`, 1, 0, false},
		"unknown fields":                {`{"x":1,"sections":[{"y":2,"items":[{"z":3,"venue":{"id":"1","name":"A","slug":"a","w":{}}}]}]}`, 1, 0, false},
		"an empty list of what?":        {`{"sections":[{"items":[]}]}`, 0, 0, true},
		"an empty list of banners":      {`{"sections":[{"template":"banner","items":[]}]}`, 0, 0, true},
		"only banners":                  {`{"sections":[{"template":"x","items":[{"template":"banner"}]}]}`, 0, 0, true},
		"venues without items":          {`{"sections":[{"template":"venue-list"}]}`, 0, 0, true},
		"items null":                    {`{"sections":[{"template":"venue-list","items":null}]}`, 0, 0, true},
		"no sections":                   {`{}`, 0, 0, true},
		"sections null":                 {`{"sections":null}`, 0, 0, true},
		"sections empty":                {`{"sections":[]}`, 0, 0, true},
		"sections of another type":      {`{"sections":"none"}`, 0, 0, true},
		"an array":                      {`[]`, 0, 0, true},
		"null":                          {`null`, 0, 0, true},
		"two values":                    {`{"sections":[{"items":[` + goodVenue + `]}]}{}`, 0, 0, true},
		"no-content by name":            {`{"sections":[{"name":"no-content"}]}`, 0, 0, true},
		"no-content by template":        {`{"sections":[{"template":"no_content"}]}`, 0, 0, true},
		"no-content beside a list":      {`{"sections":[{"template":"venue-list","items":[]},{"template":"no-content"}]}`, 0, 0, true},
		"no-content beside a venue":     {`{"sections":[{"items":[` + goodVenue + `]},{"template":"no-content"}]}`, 0, 0, true},
		"venue null":                    {`{"sections":[{"template":"venue-list","items":[{"venue":null}]}]}`, 0, 1, false},
		"venue of another type":         {`{"sections":[{"items":[{"venue":"1"}]}]}`, 0, 1, false},
		"venue without id":              {`{"sections":[{"items":[{"venue":{"name":"A","slug":"a"}}]}]}`, 0, 1, false},
		"venue without name":            {`{"sections":[{"items":[{"venue":{"id":"1","name":" ","slug":"a"}}]}]}`, 0, 1, false},
		"venue without slug":            {`{"sections":[{"items":[{"venue":{"id":"1","name":"A"}}]}]}`, 0, 1, false},
		"venue with a slug that climbs": {`{"sections":[{"items":[{"venue":{"id":"1","name":"A","slug":".."}}]}]}`, 0, 1, false},
		"a good and a broken one":       {`{"sections":[{"items":[{"template":"venue-large"},` + goodVenue + `]}]}`, 1, 1, false},
		"a banner among venues":         {`{"sections":[{"items":[{"template":"banner"},` + goodVenue + `]}]}`, 1, 0, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := decodeSearch([]byte(test.body))
			check.That(t, (err != nil) == test.fails && len(got.hits) == test.hits && got.broken == test.broken,
				"decodeSearch = %d hits, %d broken, %v; want %d, %d, error %t", len(got.hits), got.broken, err, test.hits, test.broken, test.fails)
			check.That(t, strings.Contains(name, "no-content") == errors.Is(err, errNoContent), "error = %v: only no-content is told apart", err)
		})
	}
}

func TestDecodeSearchBoundsTheVenues(t *testing.T) {
	t.Parallel()
	items := make([]string, maxVenues+5)
	for i := range items {
		items[i] = fmt.Sprintf(`{"venue":{"id":"%d","name":"A","slug":"a"}}`, i)
	}
	got, err := decodeSearch([]byte(`{"sections":[{"items":[` + strings.Join(items, ",") + `]}]}`))
	check.That(t, err == nil && len(got.hits) == maxVenues && got.broken == 5,
		"%d hits, %d broken, %v; want %d and 5", len(got.hits), got.broken, err, maxVenues)
}

func TestPoint(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		ok   bool
	}{
		"longitude first": {`[34.7,32.1]`, true},
		"with altitude":   {`[34.7,32.1,5]`, true},
		"missing":         {`null`, false},
		"empty":           {`[]`, false},
		"half":            {`[34.7]`, false},
		"zero":            {`[0,0]`, false},
		"off the earth":   {`[181,32.1]`, false},
		"latitude first":  {`[32.1,134.7]`, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lonLat []float64
			check.OK(t, json.Unmarshal([]byte(test.body), &lonLat))
			got := point(lonLat)
			check.That(t, (got != nil) == test.ok && (got == nil || got.Lat == 32.1 && got.Lng == 34.7), "point = %v", got)
		})
	}
}

func TestLink(t *testing.T) {
	t.Parallel()
	check.Equal(t, "https://wolt.com/en/isr/tel-aviv/restaurant/giraffe", link(city{country: "ISR", slug: "tel-aviv"}, "giraffe"))
	check.Equal(t, "https://wolt.com/en/fin/%C3%A5/restaurant/a%2F..%2Fb%3Fc%23d", link(city{country: "FIN", slug: "å"}, "a/../b?c#d"))
}

// FuzzDecodeSearch checks that no answer makes the decoder fall over, say "none"
// about an answer that lists none, or let out a venue that has no page.
func FuzzDecodeSearch(f *testing.F) {
	for _, seed := range []string{
		`{"sections":[{"template":"venue-list","items":[` + goodVenue + `]}]}`,
		`{"sections":[{"template":"venue-list","items":[]}]}`,
		`{"sections":[{"template":"no-content","name":"no-content"}]}`,
		`{"sections":[{"items":[{"venue":{"id":"1","name":"א","slug":"a/..","location":[1e308,-1e308]}}]}]}`,
		`{"sections":[{"items":[{"template":"venue"},null,{}]}]}`,
		`null`, ``, `<html>`, "\ufeff{}", `{"sections":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decodeSearch(body)
		check.That(t, err != nil || len(got.hits) != 0 || got.broken != 0 || strings.Contains(string(body), "items") ||
			strings.Contains(strings.ToLower(string(body)), "\\u") || strings.Contains(strings.ToLower(string(body)), "item"),
			"an answer without items was taken for an empty one: %q", body)
		for _, h := range got.hits {
			page, err := url.Parse(link(city{country: "ISR", slug: "x"}, h.slug))
			check.Require(t, err == nil, "link of %q: %v", h.slug, err)
			check.That(t, page.Host == "wolt.com" && strings.HasPrefix(page.EscapedPath(), "/en/isr/x/restaurant/") && h.venue.Name != "",
				"venue %+v links to %s", h.venue, page)
		}
	})
}

func FuzzDecodeCities(f *testing.F) {
	f.Add([]byte(`{"results":[{"slug":"x","name":"X","country_code_alpha3":"ISR","location":{"coordinates":[34,32]}}]}`))
	f.Add([]byte(`{"results":[null,7,{}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := decodeCities(body, 100)
		check.Require(t, (err == nil) != (list == nil), "list %v and error %v", list, err)
		if err != nil {
			return
		}
		c := list.nearest(list.cities[0].location, "")
		check.That(t, safeSegment(c.slug), "nearest = %v", c)
	})
}

func TestPlan(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		place match.Place
		want  []query
	}{
		"latin":        {match.Place{Name: "Giraffe"}, []query{{"en", "Giraffe"}, {"he", "Giraffe"}}},
		"hebrew first": {match.Place{Name: "ג'ירף"}, []query{{"he", "ג'ירף"}, {"en", "ג'ירף"}}},
		"generic words": {
			match.Place{Name: "מסעדת מוזס"},
			[]query{{"he", "מסעדת מוזס"}, {"he", "מוזס"}, {"en", "מסעדת מוזס"}},
		},
		"branch": {
			match.Place{Name: "Moses | Rothschild"},
			[]query{{"en", "Moses | Rothschild"}, {"en", "Moses"}, {"he", "Moses | Rothschild"}},
		},
		"nothing but generic words": {match.Place{Name: "The Restaurant"}, []query{{"en", "The Restaurant"}, {"he", "The Restaurant"}}},
		"aliases": {
			match.Place{Name: "Taizu", Aliases: []string{"טאיזו", "", "taizu"}},
			[]query{{"en", "Taizu"}, {"he", "Taizu"}, {"he", "טאיזו"}},
		},
		"other scripts": {match.Place{Name: "Пушкин"}, []query{{"en", "Пушкин"}, {"he", "Пушкин"}}},
		"cleaned":       {match.Place{Name: "\u200fA \x00\n B\u202e"}, []query{{"en", "A B"}, {"he", "A B"}}},
		"no name":       {match.Place{Name: " \u200b\t", Address: "1 Main St"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := plan(test.place, 9)
			check.Equal(t, test.want, got, cmp.AllowUnexported(query{}))
			check.That(t, len(test.want) <= 1 || len(plan(test.place, 1)) == 1, "the limit is not kept")
		})
	}
}

func TestQueriesAreBounded(t *testing.T) {
	t.Parallel()
	for _, q := range plan(match.Place{Name: strings.Repeat("שלום ", 2000)}, 4) {
		n := utf8.RuneCountInString(q.text)
		check.That(t, n <= maxQuery && utf8.ValidString(q.text), "query of %d runes", n)
	}
}
