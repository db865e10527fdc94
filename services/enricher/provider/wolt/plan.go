package wolt

import (
	"slices"
	"strings"
	"unicode"

	"github.com/expediter-io/expediter/services/enricher/match"
)

// maxQuery bounds a query in runes. A longer one says nothing more to a search.
const maxQuery = 80

// query is one call of a plan.
type query struct {
	language string // app-language: the language of the names in the answer
	text     string
}

// generic are words that say what a place is and not which, in the languages that
// places are searched for in. They are left out in a second attempt, because one
// side often has them and the other does not.
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

// plan lists the calls to make for a place, the likeliest first and at most limit:
// its name in the language of its script, then without branch and generic words,
// then in the other languages, then its other names. It is empty for a place
// without a name.
func plan(place match.Place, languages []string, limit int) []query {
	name := clean(place.Name)
	own := languageOf(name, languages)

	candidates := make([]query, 0, 2+len(languages)+len(place.Aliases))
	candidates = append(candidates, query{own, name}, query{own, core(name)})

	for _, language := range languages {
		candidates = append(candidates, query{language, name})
	}

	for _, alias := range place.Aliases {
		alias = clean(alias)
		candidates = append(candidates, query{languageOf(alias, languages), alias})
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

// core is a name without its branch ("Moses - Dizengoff") and without generic
// words, or empty when nothing would be left.
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

// scripts are the scripts of languages that are not written in Latin letters.
var scripts = map[string]*unicode.RangeTable{ //nolint:gochecknoglobals // A constant table.
	"ar": unicode.Arabic, "bg": unicode.Cyrillic, "el": unicode.Greek, "he": unicode.Hebrew, "ja": unicode.Han,
	"ka": unicode.Georgian, "kk": unicode.Cyrillic, "mk": unicode.Cyrillic, "ru": unicode.Cyrillic, "uk": unicode.Cyrillic,
}

// languageOf picks the first language whose script a text is written in, or the
// first of all.
func languageOf(text string, languages []string) string {
	for _, language := range languages {
		base, _, _ := strings.Cut(strings.ToLower(language), "-")

		script, ok := scripts[base]
		if !ok {
			script = unicode.Latin
		}

		if strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(script, r) }) {
			return language
		}
	}
	return languages[0]
}
