package address

import (
	"slices"
	"strconv"

	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// word is a word of an address and what it stands for.
type word struct {
	word    text.Word
	concept string
}

// segment is one part of an address.
type segment struct {
	plain     []word // the name of a street, a building or a place
	types     []word // words for street
	rest      []word // what follows "at", "between", "corner of"
	numbers   []Number
	direction Direction
	typed     bool // has a word for street
	leading   bool // starts with a number
	postal    bool // its number is a postcode
	digits    bool // has a number that may be a house's
	all       []string
}

func (s *segment) empty() bool {
	return len(s.plain) == 0 && len(s.types) == 0 && len(s.numbers) == 0 && len(s.rest) == 0
}

// named reports whether the segment may be the street's.
func (s *segment) named() bool { return len(s.plain) > 0 || s.typed }

func (s *segment) texts() []string { return s.all }

// readSegment reads a segment from left to right.
func readSegment(s string) segment {
	var seg segment
	fields := fieldsOf(s)
	seg.digits = slices.ContainsFunc(fields, func(f field) bool { return f.isNum && !f.hash && f.number.Digits < 5 })
	r := reader{segment: &seg}
	for i := 0; i < len(fields); i++ {
		if fields[i].isNum {
			r.number(&fields[i], fields[i+1:])
			continue
		}
		if n := unit(fields[i:]); n > 0 {
			i += n - 1
			continue
		}
		if i == len(fields)-1 && i > 0 && seg.floor(&fields[i]) {
			break
		}
		for _, w := range fields[i].words {
			r.word(w, i == 0, len(fields) > 1)
		}
	}
	seg.settle()
	return seg
}

// reader is how far a segment was read.
type reader struct {
	*segment

	crossing bool // after "at", "between", "corner of"
	numbered bool // after a word for a road that has a number for a name
}

func (r *reader) number(f *field, after []field) {
	switch {
	case r.numbered: // "Highway 101" is a street, not a house
		w := strconv.Itoa(f.number.Low)
		r.plain = append(r.plain, word{word: text.Word{Text: w, Raw: w}, concept: "#" + w})
	case !f.hash && !r.crossing:
		r.segment.number(f.number, len(r.plain) == 0 && len(r.types) == 0, after)
	}
	r.numbered = false
}

func (r *reader) word(w text.Word, first, more bool) {
	r.all = append(r.all, w.Text)
	r.numbered = lexicon.NumberedRoad(w.Text)
	known, ok := lexicon.Address(w.Text)
	if ok && known.Part == lexicon.Cross && (!first || len(w.Text) > 2) {
		r.crossing = r.crossing || len(r.plain) > 0 || len(r.types) > 0
		return
	}
	r.segment.word(w, known.Part, r.crossing, first && more)
}

// floor drops the number before a last word for floor or flat: "12. этаж". It reports whether there was one.
func (s *segment) floor(f *field) bool {
	w, ok := f.word()
	if !ok || !isUnit(w.Text) || len(s.numbers) == 0 || len(s.plain) > 0 || s.typed {
		return false
	}
	s.numbers = s.numbers[:len(s.numbers)-1]
	return true
}

// word files a word of the segment. First reports that it starts the segment and is not all of it.
func (s *segment) word(w text.Word, part lexicon.Part, crossing, first bool) {
	to := &s.plain
	if crossing {
		to = &s.rest
	}
	if n, ok := lexicon.Ordinal(w.Text); ok {
		*to = append(*to, word{word: w, concept: "#" + n})
		return
	}
	if n, ok := lexicon.Roman(w.Text); ok && len(*to) > 0 { // "Paul VI"
		w.Raw = "" // it does not sound like its letters
		*to = append(*to, word{word: w, concept: "#" + n})
		return
	}
	if first && s.spelled(w) {
		return
	}
	switch part {
	case lexicon.Type:
		s.types = append(s.types, word{word: w, concept: lexicon.Canonical(w.Text)})
		s.typed = s.typed || !crossing
	case lexicon.Direction:
		if !crossing {
			s.direction |= compass[lexicon.Canonical(w.Text)]
		}
		s.types = append(s.types, word{word: w, concept: lexicon.Canonical(w.Text)})
	case lexicon.Filler, lexicon.NumberMark, lexicon.Cross:
	case lexicon.Building:
		*to = append(*to, word{word: w, concept: lexicon.Canonical(w.Text)})
	case lexicon.Plain, lexicon.Unit:
		if stem, _, ok := lexicon.StreetSuffix(w.Text); ok {
			s.typed = s.typed || !crossing
			w.Text, w.Raw = stem, stem
		}
		*to = append(*to, word{word: w, concept: lexicon.StreetName(w.Text)})
	}
}

// spelled records a house number in letters, "One Market Plaza", and reports whether the word is one. Where the segment has
// digits too, these are the number: "Cinco de Mayo 12". Other scripts than Latin do not spell house numbers, but streets
// start with such words.
func (s *segment) spelled(w text.Word) bool {
	if s.digits || len(s.numbers) > 0 || w.Script != text.Latin {
		return false
	}
	n, ok := lexicon.Number(w.Text)
	if !ok {
		return false
	}
	number, _ := parseNumber(n)
	s.numbers = append(s.numbers, number)
	s.leading = true
	return true
}

// number files a number: a house number, or a postcode when it is long and does not start the segment.
func (s *segment) number(n Number, first bool, after []field) {
	if n.Digits >= 6 || n.Digits == 5 && (!first || !s.street(after)) || n.Digits == 4 && len(s.numbers) > 0 {
		s.postal = len(s.numbers) == 0
		return
	}
	if s.leading && (len(s.plain) > 0 || len(s.types) > 0) {
		return // the house number came first
	}
	s.leading = s.leading || first
	s.numbers = append(s.numbers, n)
}

// street reports whether the fields after a number look like a street: five digits and a city are a postcode.
func (s *segment) street(after []field) bool {
	for _, f := range after {
		for _, w := range f.words {
			known, _ := lexicon.Address(w.Text)
			if known.Part == lexicon.Type || known.Part == lexicon.Direction {
				return true
			}
			if _, _, ok := lexicon.StreetSuffix(w.Text); ok {
				return true
			}
			if _, ok := lexicon.Ordinal(w.Text); ok {
				return true
			}
		}
	}
	return false
}

// settle makes the words for street the name when there is no other: "the Promenade", "Broadway Avenue".
func (s *segment) settle() {
	if len(s.plain) > 0 || len(s.types) == 0 {
		return
	}
	s.plain = s.types
}
