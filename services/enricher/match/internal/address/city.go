package address

import (
	"slices"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/phonetic"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

// City is the name of a city.
type City struct {
	// Words are the folded words.
	Words []string
	// Canonical is the name that stands for all names of the city, without spaces.
	Canonical string
	known     bool
	squeezed  string // Canonical with each doubled letter written once: "odessa" and "odesa"
	tokens    []token.Token
	initials  string
	row       phonetic.Row
	script    text.Script
}

// ParseCity reads the name of a city. The text behind a comma or a bracket is a region or a country, and ignored.
func ParseCity(raw string) City {
	folded := text.Fold(raw)
	if i := strings.IndexAny(folded, ",;(|"); i > 0 {
		folded = folded[:i]
	}
	var c City
	var sounds []phonetic.Sound
	for _, w := range text.Words(folded) {
		if text.IsNumber(w.Text) {
			continue // a postcode
		}
		c.Words = append(c.Words, w.Text)
		concept := ""
		if known, ok := lexicon.Address(w.Text); ok {
			concept = known.Canonical
		}
		t := token.New(w, concept)
		c.tokens = append(c.tokens, t)
		sounds = append(sounds, t.Row.Sounds...)
		c.initials += string(t.Runes[:1])
		c.script = max(c.script, w.Script)
	}
	c.Canonical, c.known = lexicon.City(strings.Join(c.Words, ""))
	c.squeezed = squeeze(c.Canonical)
	c.row = phonetic.NewRow(sounds)
	return c
}

// Present reports whether there is a name.
func (c *City) Present() bool { return len(c.tokens) > 0 }

// CompareCities reports whether two cities are the same, and whether that can be told. addressA and addressB are the words of the
// addresses: a city that the other venue's address names is the same city. It does not allocate.
func CompareCities(a, b *City, addressA, addressB []string) (same, known bool) {
	if a.Present() && a.within(addressB) || b.Present() && b.within(addressA) {
		return true, true
	}
	if !a.Present() || !b.Present() {
		return false, false
	}
	same = sameCity(a, b)
	return same, same || token.Comparable(a.script, b.script)
}

func sameCity(a, b *City) bool {
	if a.squeezed == b.squeezed {
		return true
	}
	if a.known && b.known { // "Jaffa" and "Haifa" sound alike in two scripts
		return false
	}
	if abbreviates(a, b) || abbreviates(b, a) {
		return true
	}
	al := token.Align(a.tokens, b.tokens)
	totalA, commonA := tallyCity(a.tokens, &al.LikenessA)
	totalB, commonB := tallyCity(b.tokens, &al.LikenessB)
	if max(commonA/totalA, commonB/totalB) > 0.85 {
		return true
	}
	return a.script != b.script && min(a.row.Weight, b.row.Weight) > 1 &&
		phonetic.Similarity(a.row, b.row, phonetic.VowelsOf(a.script, b.script)) > 0.8
}

// squeeze writes each doubled letter once.
func squeeze(s string) string {
	return string(slices.Compact([]rune(s)))
}

// abbreviates reports whether a is the initials of b: "la", "nyc".
func abbreviates(a, b *City) bool {
	return len(a.Words) == 1 && len(b.Words) > 1 && a.Words[0] == b.initials
}

func (c *City) within(address []string) bool {
	for _, w := range c.Words {
		if !slices.Contains(address, w) {
			return false
		}
	}
	return true
}

// tallyCity weighs the words. Words for a quarter of the compass or a centre weigh little, because sources add and drop
// them freely.
func tallyCity(words []token.Token, like *[token.Limit]float64) (total, common float64) {
	for i := range min(len(words), token.Limit) {
		w := 1.0
		if known, ok := lexicon.Address(words[i].Text); ok && known.Part != lexicon.Plain {
			w = 0.2
		} else if known, ok := lexicon.Name(words[i].Text); ok && known.Kind >= lexicon.Venue {
			w = 0.2
		}
		total += w
		common += w * like[i]
	}
	return total, common
}
