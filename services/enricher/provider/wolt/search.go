package wolt

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode"

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
	if err != nil { // the position is no number
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

// gathered has the venues that the calls of one search have found so far.
type gathered struct {
	at     map[string]int // index in venues by venue ID
	broken int
	cities *cityList
	near   city
	venues []provider.Venue
}

// add adds the venues of one call. A known venue gets the new name as an alias, because it is the same venue in
// another language.
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

// linked returns the venue with the link to its page, in the nearest city.
func (g *gathered) linked(h hit) provider.Venue {
	in := g.near
	if h.venue.Location != nil {
		in = g.cities.nearest(*h.venue.Location, h.country)
	}
	h.venue.URL = link(in, h.slug)
	if h.venue.City == "" { // Often left empty by the search.
		h.venue.City = in.name
	}
	return h.venue
}

// maxQuery bounds a query in runes. A longer query does not improve a search.
const maxQuery = 80

// query is one call of a plan.
type query struct {
	language string // app-language: the language of the names in the answer
	text     string
}

// generic are words for kinds of places, in the languages of searches. They are left out in a second attempt,
// because one side often has them and the other does not.
var generic = wordSet( //nolint:gochecknoglobals // A constant table.
	"restaurant restaurants ristorante restaurante the bar cafe café coffee grill kitchen bistro bistrot eatery diner",
	"מסעדת מסעדה המסעדה קפה בית גריל בר ביסטרו מטבח פיצרייה פיצריה מאפיית",
	"مطعم مطاعم مقهى كافيه",
	"ресторан кафе бар бистро",
)

func wordSet(lines ...string) map[string]bool {
	set := make(map[string]bool)
	for _, line := range lines {
		for word := range strings.FieldsSeq(line) {
			set[word] = true
		}
	}
	return set
}

// plan returns the calls to make for a place, the most promising first, at most limit: its name in the language of
// its script, then without branch and generic words, then in the other languages, then its other names. It is empty
// for a place without a name.
func plan(place match.Place, limit int) []query {
	name := clean(place.Name)
	own := languageOf(name)
	candidates := make([]query, 0, 2+len(languages)+len(place.Aliases))
	candidates = append(candidates, query{own, name}, query{own, core(name)})
	for _, language := range languages {
		candidates = append(candidates, query{language, name})
	}
	for _, alias := range place.Aliases {
		alias = clean(alias)
		candidates = append(candidates, query{languageOf(alias), alias})
	}
	var queries []query
	for _, q := range candidates {
		if q.text != "" && !slices.ContainsFunc(queries, q.same) && len(queries) < limit {
			queries = append(queries, q)
		}
	}
	return queries
}

func (q query) same(other query) bool {
	return q.language == other.language && strings.EqualFold(q.text, other.text)
}

// clean makes a name into a query: control characters and marks of direction out,
// single spaces, not longer than maxQuery.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Cf, r), r == unicode.ReplacementChar:
			return -1
		default:
			return r
		}
	}, name)
	runes := []rune(strings.Join(strings.Fields(name), " "))
	if len(runes) > maxQuery {
		runes = runes[:maxQuery]
	}
	return strings.TrimSpace(string(runes))
}

// core returns a name without its branch ("Moses - Dizengoff") and without generic words, or "" when no word would be
// left.
func core(name string) string {
	for _, separator := range []string{" - ", " – ", " — ", "|", "("} {
		if before, _, found := strings.Cut(name, separator); found && strings.TrimSpace(before) != "" {
			name = before
		}
	}
	words := strings.Fields(name)
	words = slices.DeleteFunc(words, func(word string) bool {
		return generic[strings.ToLower(strings.Trim(word, ".,&'\"-"))]
	})
	return strings.Join(words, " ")
}

// scripts are the scripts of languages.
var scripts = map[string]*unicode.RangeTable{"en": unicode.Latin, "he": unicode.Hebrew} //nolint:gochecknoglobals // A constant table.

// languageOf returns the first language whose script a text is written in, or else the first language.
func languageOf(text string) string {
	for _, language := range languages {
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(scripts[language], r) }) {
			return language
		}
	}
	return languages[0]
}
