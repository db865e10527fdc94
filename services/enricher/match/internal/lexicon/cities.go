package lexicon

import (
	_ "embed" // the tables
	"strings"
)

// City returns the one name under which a city of several names is compared. The word is folded and without spaces.
func City(joined string) string {
	c, _ := KnownCity(joined)
	return c
}

// KnownCity is City, and reports whether the tables have the city. Two that they have are one only under one name.
func KnownCity(joined string) (string, bool) {
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
