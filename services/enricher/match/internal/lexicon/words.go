// Package lexicon holds the fixed word tables of the matcher: words that say little about which venue is meant, words for
// the same thing in several languages, parts of addresses, numbers, and names of cities. The tables are written by hand
// from general knowledge of the languages. None is fitted to data.
package lexicon

import (
	_ "embed" // the tables
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// Kind is the kind of a word of a name, by how much it distinguishes a venue.
type Kind uint8

// The kinds of words, from the most telling to the least.
const (
	// Distinctive is any word that is in no table.
	Distinctive Kind = iota
	// Food is a dish, a cuisine or a common adjective: many venues of a city share it.
	Food
	// Kitchen is a word for a kind of place that also tells what it serves: a pizzeria, a bakery.
	Kitchen
	// Venue is a word for the kind of place, which sources add and drop.
	Venue
	// Stop is an article, a preposition, a conjunction or a legal form.
	Stop
)

// weights are the weights of words by kind, relative to a distinctive one.
var weights = [...]float64{Distinctive: 1, Food: 0.45, Kitchen: 0.25, Venue: 0.25, Stop: 0.06}

// Weight returns the weight of a word of the kind, in (0,1].
func (k Kind) Weight() float64 { return weights[k] }

// Entry is the entry of a word in the tables.
type Entry struct {
	// Concept is the same for words that mean the same, in any language.
	Concept string
	Kind    Kind
}

// Name looks up a folded word of a name, with or without the Hebrew words for "the" and "and", which are written on to it.
func Name(word string) (Entry, bool) {
	if e, ok := names()[word]; ok {
		return e, ok
	}
	rest, and := strings.CutPrefix(word, "ו")
	rest, the := strings.CutPrefix(rest, "ה")
	if !and && !the {
		return Entry{}, false
	}
	e, ok := names()[rest]
	if !ok && and && the { // a word that starts with the letter of the article
		e, ok = names()["ה"+rest]
	}
	return e, ok && len(rest) > 2
}

//go:embed names.txt
var namesText string

var names = sync.OnceValue(func() map[string]Entry {
	kinds := map[string]Kind{"food": Food, "kitchen": Kitchen, "plain": Distinctive, "venue": Venue, "stop": Stop}
	out := make(map[string]Entry, 1024)
	for kind, words := range lines(namesText) {
		for _, w := range words {
			out[key(w)] = Entry{Concept: words[0], Kind: kinds[kind]}
		}
	}
	return out
})

// lines yields the words of each line of a table, with the heading above it. A line that begins with // is a remark.
func lines(table string) iter.Seq2[string, []string] {
	return func(yield func(heading string, words []string) bool) {
		heading := ""
		for line := range strings.Lines(table) {
			words := strings.Fields(line)
			if name, ok := strings.CutSuffix(strings.TrimSpace(line), ":"); ok {
				heading = name
			} else if len(words) > 0 && words[0] != "//" && !yield(heading, words) {
				return
			}
		}
	}
}

// concepts reads a table of words that mean the same. The first word of a line names the meaning.
func concepts(table string) map[string]string {
	out := make(map[string]string, 1024)
	for _, words := range lines(table) {
		for _, w := range words {
			out[key(w)] = words[0]
		}
	}
	return out
}

// key returns a word of a table in the form in which texts are looked up.
func key(word string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '&' || r == '@' {
			return r
		}
		return -1
	}, text.Fold(word))
}

// Number returns the value of a number word as digits: "five", "cinq" and "пять" are "5".
func Number(word string) (string, bool) {
	n, ok := numbers()[word]
	return n, ok
}

// Ordinal returns the value of an ordinal word or of digits with an ordinal ending: "fifth", "5th", "5e" are "5".
func Ordinal(word string) (string, bool) {
	if n, ok := ordinals()[strings.TrimPrefix(word, "ה")]; ok { // the Hebrew article
		return n, true
	}
	digits := 0
	for digits < len(word) && word[digits] >= '0' && word[digits] <= '9' {
		digits++
	}
	if digits == 0 || digits > 3 {
		return "", false
	}
	switch word[digits:] {
	case "st", "nd", "rd", "th", "er", "ere", "eme", "e", "o", "a", "ª", "º", "й", "я", "ый", "ая", "го", "ος", "η":
		return word[:digits], true
	}
	return "", false
}

// Roman returns the value of a Roman numeral below forty, as streets carry them: "Pius XII", "Henri IV". A single
// letter other than V and X counts as an initial, and a numeral that is not in its shortest form as a word.
func Roman(word string) (string, bool) {
	if len(word) > maxRoman || word == "i" || strings.Trim(word, "ivx") != "" {
		return "", false
	}
	value := 0
	for i := range len(word) {
		d := romanDigit(word[i])
		if i+1 < len(word) && d < romanDigit(word[i+1]) {
			d = -d
		}
		value += d
	}
	if value <= 0 || value >= 40 || roman(value) != word {
		return "", false
	}
	return strconv.Itoa(value), true
}

// maxRoman is the length of the longest numeral below forty, XXXVIII.
const maxRoman = 7

func romanDigit(c byte) int { return [...]int{'i': 1, 'v': 5, 'x': 10}[c] }

func roman(n int) string {
	units := [...]string{"", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"}
	return strings.Repeat("x", n/10) + units[n%10]
}

// values reads a table of values, each with the words for it.
func values(table string) map[string]string {
	out := make(map[string]string, 256)
	for _, words := range lines(table) {
		for _, w := range words[1:] {
			out[key(w)] = words[0]
		}
	}
	return out
}

//go:embed numbers.txt
var numbersText string

//go:embed ordinals.txt
var ordinalsText string

var (
	numbers  = sync.OnceValue(func() map[string]string { return values(numbersText) })
	ordinals = sync.OnceValue(func() map[string]string { return values(ordinalsText) })
)

// City returns the name that stands for all names of a city in comparisons, and reports whether the tables have the city. The word is
// folded and without spaces. Two cities in the tables are the same only if their names are equal.
func City(joined string) (name string, known bool) {
	if c, ok := cities()[joined]; ok {
		return c, true
	}
	return joined, false
}

//go:embed cities.txt
var citiesText string

var cities = sync.OnceValue(func() map[string]string { return concepts(citiesText) })

// Region reports whether a folded word is a state, a province or a country, which addresses carry or leave out.
func Region(word string) bool { return regions()[word] }

//go:embed regions.txt
var regionsText string

var regions = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(regionsText) {
		out[key(w)] = true
	}
	return out
})

// BrandNumber reports whether a telephone number belongs to a brand and not to a place, such as a toll-free number. The number is
// digits as written, with its trunk prefix at home or with its country code, without a plus or an international prefix.
func BrandNumber(digits string) bool {
	masked := []byte(digits)
	for i := len(masked) - 1; i > 0; i-- {
		masked[i] = 'x'
		if i <= longestBrand && brandNumbers()[string(masked)] {
			return true
		}
	}
	return false
}

// longestBrand is the most digits of a pattern in the table, country code included.
const longestBrand = 7

//go:embed brands.txt
var brandsText string

var brandNumbers = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{}
	for _, words := range lines(brandsText) {
		for _, pattern := range words[2:] {
			out[words[0]+pattern] = true
			if trunk := words[1]; trunk != "+" {
				out[strings.Trim(trunk, "-")+pattern] = true
			}
		}
	}
	return out
})

// Part is the role of a word of an address.
type Part uint8

// The parts of an address that are not the name of a street.
const (
	// Plain is any other word.
	Plain Part = iota
	// Type is a word for street, road, square.
	Type
	// Direction is a quarter of the compass.
	Direction
	// Unit starts a suite, floor or flat, whose number is not the house's.
	Unit
	// Cross starts a crossing street or a neighbour: the words after it do not name the street itself.
	Cross
	// NumberMark means that the next word is the house number.
	NumberMark
	// Building is a word for a mall, tower or hotel around the venue.
	Building
	// Filler means nothing.
	Filler
)

// AddressWord is the entry of a word of an address in the tables.
type AddressWord struct {
	// Canonical is the same for all spellings of the word.
	Canonical string
	Part      Part
}

// Address looks up a folded word of an address.
func Address(word string) (AddressWord, bool) {
	w, ok := addresses()[word]
	return w, ok
}

//go:embed addresses.txt
var addressesText string

var addresses = sync.OnceValue(func() map[string]AddressWord {
	parts := map[string]Part{
		"building": Building, "cross": Cross, "direction": Direction, "filler": Filler, "mark": NumberMark, "type": Type, "unit": Unit,
	}
	out := make(map[string]AddressWord, 512)
	for part, words := range lines(addressesText) {
		for _, w := range words {
			out[key(w)] = AddressWord{Canonical: words[0], Part: parts[part]}
		}
	}
	return out
})

// StreetType returns a bit for a canonical word for street that tells two streets with one name apart, and 0 for others, such as
// those for a road out of town or a promenade, which are translated freely.
func StreetType(canonical string) uint32 { return 1 << (slices.Index(streetTypes, canonical) + 1) >> 1 }

var streetTypes = strings.Fields("street avenue boulevard road lane drive court circle terrace square alley crescent way mews close quay carrera")

// Restaurant reports whether a canonical word for a kind of place is one of those that sources use for one another.
func Restaurant(canonical string) bool {
	return slices.Contains([]string{"restaurant", "trattoria", "osteria", "bistro", "brasserie", "taverna", "eatery"}, canonical)
}

// NumberedRoad reports whether the number after a word names the road or the building: "highway 101", "terminal 2".
func NumberedRoad(word string) bool {
	return slices.Contains([]string{"highway", "hwy", "hiway", "route", "rte", "interstate", "us", "sr", "km", "ca", "terminal"}, word)
}

// StreetStem returns the stem of a compound such as "hauptstrasse", "kerkstraat" or "drottninggatan". It has at least three letters.
func StreetStem(word string) (stem string, ok bool) {
	for _, s := range suffixes {
		if stem, found := strings.CutSuffix(word, s); found && len(stem) >= 3 {
			return stem, true
		}
	}
	return word, false
}

var suffixes = []string{
	"strasse", "straat", "str", "gasse", "gatan", "gata", "gaten", "gade", "vagen", "veien", "vej", "allee", "laan",
	"plein", "platz", "gracht", "katu", "kade", "weg",
}

// StreetName returns the meaning of a word of a street's name, the same in every language, and "" for a word that
// streets do not translate, as most are. Translations of a street's name agree in these words only: "King George",
// "Independence Road", "Red Square".
func StreetName(word string) string {
	if c, ok := streetNames()[word]; ok {
		return c
	}
	if rest, ok := strings.CutPrefix(word, "ה"); ok { // the Hebrew article
		if c, ok := streetNames()[rest]; ok {
			return c
		}
	}
	if e, ok := Name(word); ok && e.Kind == Food { // adjectives, "new", "red"
		return e.Concept
	}
	return ""
}

//go:embed streets.txt
var streetsText string

var streetNames = sync.OnceValue(func() map[string]string { return concepts(streetsText) })
