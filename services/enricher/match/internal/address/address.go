// Package address takes street addresses of any country apart, as far as that can be done without a gazetteer, and
// compares them.
package address

import (
	"slices"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/phonetic"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

// Address is what an address states.
type Address struct {
	// Street is the words of the street's name, without the word for street.
	Street []token.Token
	// Also is the words of crossing streets, buildings and localities.
	Also []token.Token
	// Numbers are the house numbers, mostly one.
	Numbers []Number
	// Direction is the quarter of the compass in the street's name.
	Direction Direction
	// Words is every word, for telling which words of a name are local.
	Words []string
	// Row is how the street's name sounds.
	Row phonetic.Row
	// Script is that of the street's name.
	Script text.Script
}

// Present reports whether there is anything to compare.
func (a *Address) Present() bool { return len(a.Street) > 0 || len(a.Numbers) > 0 }

// Direction is a set of compass points.
type Direction uint8

var compass = map[string]Direction{"n": 1, "s": 2, "e": 4, "w": 8, "ne": 5, "nw": 9, "se": 6, "sw": 10}

// opposite reports whether two directions exclude each other.
func opposite(a, b Direction) bool {
	return a&1 != 0 && b&2 != 0 || a&2 != 0 && b&1 != 0 || a&4 != 0 && b&8 != 0 || a&8 != 0 && b&4 != 0
}

// Parse takes an address apart. City is the folded words of the city, which are no part of the street.
func Parse(raw string, city []string) Address {
	segments := split(text.Fold(raw))
	read := make([]segment, 0, len(segments))
	for _, s := range segments {
		if seg := readSegment(s); !seg.empty() {
			read = append(read, seg)
		}
	}
	return assemble(read, city)
}

// split cuts a folded address at what separates its parts: commas, semicolons, bars, brackets, and full stops that stand alone.
func split(s string) []string {
	s = strings.ReplaceAll(s, " . ", ",")
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(",;|()[]\n", r) })
}

// assemble decides which segment is the street's.
func assemble(read []segment, city []string) Address {
	var a Address
	at := streetSegment(read)
	for i := range read {
		s := &read[i]
		a.Words = append(a.Words, s.texts()...)
		switch {
		case i == at:
			a.take(s, city)
		case i == at+1 && at >= 0 && len(read[at].numbers) == 0 && s.leading && !s.postal && !s.typed:
			// The number has a segment of its own: "Rua Augusta, 123 - Consolacao", "ул. Тверская, д. 12".
			a.Numbers = append(a.Numbers, s.numbers...)
			a.also(s.plain, city)
		default:
			a.also(s.plain, city)
			a.also(s.rest, city)
		}
	}
	return a
}

// streetSegment picks the segment with a number and words, else the one with a word for street, else the first.
func streetSegment(read []segment) int {
	first := slices.IndexFunc(read, func(s segment) bool { return s.named() })
	typed := slices.IndexFunc(read, func(s segment) bool { return s.typed })
	housed := slices.IndexFunc(read, func(s segment) bool { return s.named() && len(s.numbers) > 0 && !s.postal })
	switch {
	case housed < 0 && typed < 0:
		return first
	case housed < 0 || typed >= 0 && typed < housed:
		return typed // "Rua Augusta, 123 Consolacao"
	}
	return housed
}

func (a *Address) take(s *segment, city []string) {
	a.Numbers = append(a.Numbers, s.numbers...)
	a.Direction = s.direction
	words := without(s.plain, city)
	if len(words) == 0 && (s.typed || len(s.numbers) > 0) { // "Venice Boulevard" in Venice
		words = s.plain
	}
	if len(words) == 0 {
		words = s.types
	}
	for _, w := range words {
		if len(a.Street) < token.Limit {
			a.Street = append(a.Street, token.New(w.word, w.concept))
		}
	}
	var sounds []phonetic.Sound
	for i := range a.Street {
		a.Script = max(a.Script, a.Street[i].Script)
		sounds = append(sounds, a.Street[i].Row.Sounds...)
	}
	a.Row = phonetic.NewRow(sounds)
	a.also(s.rest, city)
}

func (a *Address) also(words []word, city []string) {
	for _, w := range without(words, city) {
		if len(a.Also) < token.Limit && !lexicon.Region(w.word.Text) {
			a.Also = append(a.Also, token.New(w.word, w.concept))
		}
	}
}

func without(words []word, city []string) []word {
	var out []word
next:
	for _, w := range words {
		for _, c := range city {
			if w.word.Text == c {
				continue next
			}
		}
		out = append(out, w)
	}
	return out
}
