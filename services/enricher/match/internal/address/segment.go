package address

import (
	"strconv"
	"strings"

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
	all       []string
}

func (s *segment) empty() bool {
	return len(s.plain) == 0 && len(s.types) == 0 && len(s.numbers) == 0 && len(s.rest) == 0
}

func (s *segment) texts() []string { return s.all }

// maxFields bounds the words of one segment.
const maxFields = 24

// field is a word of a segment before it is understood.
type field struct {
	words  []text.Word
	number Number
	isNum  bool
	hash   bool
}

func readSegment(s string) segment {
	var seg segment
	fields := fieldsOf(s)
	crossing, numbered := false, false
	for i := 0; i < len(fields); i++ {
		f := fields[i]
		if f.isNum {
			if numbered { // "Highway 101" is a street, not a house
				w := strconv.Itoa(f.number.Low)
				seg.plain = append(seg.plain, word{word: text.Word{Text: w, Raw: w}, concept: "#" + w})
				numbered = false
				continue
			}
			if !f.hash && !crossing {
				seg.number(f.number, len(seg.plain) == 0 && len(seg.types) == 0, fields[i+1:])
				numbered = false
			}
			continue
		}
		if n := unit(fields, i, &seg); n > 0 {
			i += n - 1
			continue
		}
		for _, w := range f.words {
			seg.all = append(seg.all, w.Text)
			numbered = lexicon.NumberedRoad(w.Text)
			if known, ok := lexicon.Address(w.Text); ok && known.Part == lexicon.Cross && (i > 0 || len(w.Text) > 2) {
				crossing = crossing || len(seg.plain) > 0 || len(seg.types) > 0
				continue
			}
			seg.word(w, crossing, i == 0 && len(fields) > 1)
		}
	}
	seg.settle()
	return seg
}

// fieldsOf cuts a segment at spaces and tells numbers from words.
func fieldsOf(s string) []field {
	var out []field
	for _, f := range strings.Fields(text.Spread(s)) {
		if len(out) == maxFields {
			break
		}
		hash := strings.HasPrefix(f, "#")
		if n, ok := parseNumber(strings.Trim(f, "#.:'\"")); ok {
			out = append(out, field{number: n, isNum: true, hash: hash})
			continue
		}
		if words := text.Words(f); len(words) > 0 {
			if hash { // "#b"
				continue
			}
			out = append(out, field{words: words})
		}
	}
	return out
}

// unit reads "suite 200", "2nd floor", "unit b" at i and returns how many fields that took, zero when there is none.
func unit(fields []field, i int, seg *segment) int {
	f := fields[i]
	if len(f.words) != 1 {
		return 0
	}
	w, ok := lexicon.Address(f.words[0].Text)
	if _, ordinal := lexicon.Ordinal(f.words[0].Text); ordinal && i+1 < len(fields) && len(fields[i+1].words) == 1 {
		if next, ok := lexicon.Address(fields[i+1].words[0].Text); ok && next.Part == lexicon.Unit {
			return 2
		}
	}
	if !ok || w.Part != lexicon.Unit {
		return 0
	}
	if i+1 == len(fields) {
		if n := len(seg.numbers); n > 0 && len(seg.plain) == 0 && !seg.typed {
			seg.numbers = seg.numbers[:n-1] // "12. этаж"
			return 1
		}
		return 0
	}
	next := fields[i+1]
	if next.isNum || len(next.words) == 1 && len([]rune(next.words[0].Text)) == 1 {
		return 2
	}
	return 0
}

// word files a word of the segment.
func (s *segment) word(w text.Word, crossing, first bool) {
	known, _ := lexicon.Address(w.Text)
	to := &s.plain
	if crossing {
		to = &s.rest
	}
	if n, ok := lexicon.Ordinal(w.Text); ok {
		*to = append(*to, word{word: w, concept: "#" + n})
		return
	}
	if n, ok := lexicon.Number(w.Text); ok && first && len(s.numbers) == 0 {
		number, _ := parseNumber(n)
		s.numbers = append(s.numbers, number)
		s.leading = true
		return
	}
	switch known.Part {
	case lexicon.Type:
		s.types = append(s.types, word{word: w, concept: known.Canonical})
		s.typed = s.typed || !crossing
	case lexicon.Direction:
		if !crossing {
			s.direction |= compass[known.Canonical]
		}
		s.types = append(s.types, word{word: w, concept: known.Canonical})
	case lexicon.Filler, lexicon.NumberMark, lexicon.Cross:
	case lexicon.Building:
		*to = append(*to, word{word: w, concept: known.Canonical})
	default:
		if stem, _, ok := lexicon.StreetSuffix(w.Text); ok {
			s.typed = s.typed || !crossing
			w.Text, w.Raw = stem, stem
		}
		known, _ := lexicon.Name(w.Text) // "King George" is "המלך ג'ורג'"
		*to = append(*to, word{word: w, concept: known.Concept})
	}
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
