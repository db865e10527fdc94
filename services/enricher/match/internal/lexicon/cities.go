package lexicon

import (
	_ "embed" // the tables
	"strings"
)

// City returns the name that stands for all names of a city in comparisons, and reports whether the tables have the city. The word is
// folded and without spaces. Two cities in the tables are the same only if their names are equal.
func City(joined string) (name string, known bool) {
	if c, ok := cities[joined]; ok {
		return c, true
	}
	return joined, false
}

//go:embed cities.txt
var citiesText string

var cities = concepts(citiesText)

// Region reports whether a folded word is a state, a province or a country, which addresses carry or leave out.
func Region(word string) bool { return regions[word] }

//go:embed regions.txt
var regionsText string

var regions = func() map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(regionsText) {
		out[key(w)] = true
	}
	return out
}()
