package address

import (
	"slices"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

// Agreement is the result of comparing two addresses.
type Agreement struct {
	// Comparable is false when either address is missing.
	Comparable bool
	// Street is the likeness of the street names in [0,1]. It is negative when they cannot be compared, or when the
	// sound of two names in different scripts does not decide whether they are one.
	Street float64
	// Number reports how the house numbers compare.
	Number NumberAgreement
	// Heard reports whether the street names are in different scripts. Their likeness is less certain then.
	Heard bool
	// Opposite reports whether the streets are named after opposite quarters of the compass.
	Opposite bool
	// TypesDiffer reports whether the streets are of two kinds: Oak Street and Oak Avenue.
	TypesDiffer bool
	// Partial is 1 when only one street has a quarter of the compass, and less when only one has its kind.
	Partial float64
	// HouseNumber is the smaller of the first house numbers when Number is NumberSame.
	HouseNumber int
}

// NumberAgreement is the result of comparing the house numbers.
type NumberAgreement uint8

// The results of comparing house numbers.
const (
	NumberUnknown NumberAgreement = iota
	NumberSame
	NumberNear // at most four apart: the next door or another entrance
	NumberDiffers
)

// typeWorth is the weight of a word for street that one address lacks, relative to that of a quarter of the compass.
const typeWorth = 0.3

// alsoWorth is the likeness of a street that is found among crossing streets and buildings.
const alsoWorth = 0.85

// Compare compares two addresses. It does not allocate.
func Compare(a, b *Address) Agreement {
	if !a.Present() || !b.Present() {
		return Agreement{Street: -1}
	}
	g := Agreement{Comparable: true, Street: -1, Number: compareNumbers(a.Numbers, b.Numbers), Opposite: opposite(a.Direction, b.Direction)}
	if g.Number == NumberSame {
		g.HouseNumber = min(a.Numbers[0].Low, b.Numbers[0].Low)
	}
	if len(a.Street) == 0 || len(b.Street) == 0 || !token.Comparable(a.Script, b.Script) {
		return g
	}
	g.Heard = a.Script != b.Script && a.Script != text.None && b.Script != text.None
	like, crossing := likeness(a.Street, b.Street), 0.0
	if like < alsoWorth {
		crossing = alsoWorth * max(likeness(a.Street, b.Also), likeness(a.Also, b.Street))
	}
	if like = max(like, crossing); like > crossing && !g.Heard { // the names are of the streets of the houses
		g.TypesDiffer = a.Types != 0 && b.Types != 0 && a.Types&b.Types == 0
		switch {
		case (a.Direction == 0) != (b.Direction == 0):
			g.Partial = 1
		case (a.Types == 0) != (b.Types == 0):
			g.Partial = typeWorth
		}
	}
	if g.Heard {
		like = heard(a, b, like)
	}
	g.Street = like
	return g
}

// Two street names are one from a likeness in sound of soundsSame on, and two below soundsOther. Between the two, a
// letter may have been read wrongly or a part of the name translated.
const (
	soundsSame  = 0.82
	soundsOther = 0.59
	leastHeard  = 3 // consonants from which a likeness in sound, or a lack of likeness, is no accident
)

// heard returns the likeness of two street names in different scripts, given the likeness of their words. It is
// negative when the sound does not decide whether they are one.
func heard(a, b *Address, like float64) float64 {
	if like >= alsoWorth {
		return like
	}
	written := token.VowelsOf(a.Script, b.Script)
	whole := token.SoundSimilarity(a.Row, b.Row, written)
	short := min(a.Row.Weight, b.Row.Weight) < leastHeard
	if whole >= soundsSame && !short {
		return max(like, whole)
	}
	if like > 0 { // the words that agree say nothing about the others
		whole = closest(a.Street, b.Street, written)
	}
	if like > otherLike || whole > soundsOther || short && whole > soundsOther/2 {
		return -1
	}
	return like
}

// closest returns the largest likeness in sound of two words that have no partner.
func closest(a, b []token.Token, written token.Vowels) float64 {
	al := token.Align(a, b)
	best := 0.0
	for i := range a {
		for j := range b {
			if al.PartnerA[i] < 0 && al.PartnerB[j] < 0 {
				best = max(best, token.SoundSimilarity(a[i].Row, b[j].Row, written))
			}
		}
	}
	return best
}

// otherLike is the likeness of the words of two names that share one of two words: "King George" and "King David".
const otherLike = 0.55

// likeness relates the weight of the words that two street names share to the weight of the shorter name, and a
// little to that of the longer.
func likeness(a, b []token.Token) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	al := token.Align(a, b)
	totalA, commonA := tally(a, &al.LikenessA)
	totalB, commonB := tally(b, &al.LikenessB)
	if totalA == 0 || totalB == 0 {
		return 0
	}
	if differentNumbers(a, b) {
		return 0
	}
	contained := max(commonA/totalA, commonB/totalB)
	if min(totalA, totalB) < 1 { // a station, a mall
		contained = min(commonA/totalA, commonB/totalB)
	}
	overlap := (commonA + commonB) / (totalA + totalB)
	return 0.75*contained + 0.25*overlap
}

// differentNumbers reports whether two street names have numbers, and none in common: "Terminal 2" and "Terminal 5".
func differentNumbers(a, b []token.Token) bool {
	numbered := false
	for i := range a {
		if !strings.HasPrefix(a[i].Concept, "#") {
			continue
		}
		for j := range b {
			if a[i].Concept == b[j].Concept {
				return false
			}
			numbered = numbered || strings.HasPrefix(b[j].Concept, "#")
		}
	}
	return numbered
}

func tally(words []token.Token, like *[token.Limit]float64) (total, common float64) {
	for i := range words {
		w := 1.0
		if known, ok := lexicon.Address(words[i].Text); ok && known.Part == lexicon.Building {
			w = 0.4
		} else if len(words[i].Runes) == 1 {
			w = 0.6
		}
		total += w
		common += w * like[i]
	}
	return total, common
}

func compareNumbers(a, b []Number) NumberAgreement {
	if len(a) == 0 || len(b) == 0 {
		return NumberUnknown
	}
	if last := len(a) - 1; last > 0 && last == len(b)-1 { // "ул. 8 Марта, 12": the first number names the street
		for i := range last {
			if a[i].compare(b[i]) != NumberSame {
				return NumberDiffers
			}
		}
		return a[last].compare(b[last])
	}
	best := NumberDiffers
	for _, n := range a {
		for _, m := range b {
			best = min(best, n.compare(m))
		}
	}
	return best
}

func (n Number) compare(m Number) NumberAgreement {
	switch {
	case n.Parts != [2]int{} && m.Parts != [2]int{}:
		if n.Low == m.Low && n.Parts == m.Parts {
			return NumberSame
		}
	case n.Low <= m.High && m.Low <= n.High:
		return NumberSame
	case n.Low-m.High <= 4 && m.Low-n.High <= 4:
		return NumberNear
	}
	return NumberDiffers
}

// word is a word of an address with its meaning.
type word struct {
	word    text.Word
	concept string
}

// segment is one part of an address.
type segment struct {
	plain     []word // the name of a street, a building or a place
	types     []word // words for street
	kinds     uint32 // see lexicon.StreetType
	rest      []word // the words behind "at", "between", "corner of"
	numbers   []Number
	direction Direction
	typed     bool // has a word for street
	leading   bool // starts with a number
	postal    bool // its number is a postcode
	digits    bool // has a number that may be a house's
	all       []string
}

// named reports whether the segment may be the street's.
func (s *segment) named() bool { return len(s.plain) > 0 || s.typed }

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
		if d := compassPoint(fields[i:]); d != 0 {
			seg.direction |= d
			continue
		}
		for _, w := range fields[i].words {
			r.word(w, i == 0, len(fields) > 1)
		}
	}
	if len(seg.plain) == 0 { // the words for street are the name when there is no other: "the Promenade", "Broadway Avenue"
		seg.plain, seg.kinds = seg.types, 0
	}
	return seg
}

// compassPoint returns the quarter of the compass of a Chinese street, or the side of the town's gate, which stands before the word
// for street: "南京西路", "建国门外大街".
func compassPoint(fields []field) Direction {
	if len(fields) < 2 {
		return 0
	}
	point, _ := fields[0].word()
	next, _ := fields[1].word()
	known, _ := lexicon.Address(next.Text)
	if next.Script != text.Other || known.Part != lexicon.Type && next.Text != "大" {
		return 0
	}
	return compass[map[string]string{"北": "n", "南": "s", "东": "e", "東": "e", "西": "w", "内": "in", "外": "out"}[point.Text]]
}

// reader is the state of reading a segment.
type reader struct {
	*segment

	crossing bool // after "at", "between", "corner of"
	numbered bool // after a word for a road that has a number for a name
}

func (r *reader) number(f *field, after []field) {
	switch {
	case r.numbered, r.leading && len(r.plain) == 0 && len(r.types) > 0, len(after) > 1 && after[0].is("de"):
		// "Highway 101", "12 Road 4" and "25 de Mayo" are streets, not houses.
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
	r.segment.word(w, known, r.crossing, first && more)
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

// word files a word of the segment. first reports whether the word starts the segment and is not all of it.
func (s *segment) word(w text.Word, known lexicon.AddressWord, crossing, first bool) {
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
	switch known.Part {
	case lexicon.Type:
		s.types = append(s.types, word{word: w, concept: known.Canonical})
		s.typed = s.typed || !crossing
		s.kind(known.Canonical, crossing)
	case lexicon.Direction:
		if !crossing {
			s.direction |= compass[known.Canonical]
		}
		s.types = append(s.types, word{word: w, concept: known.Canonical})
	case lexicon.Filler, lexicon.NumberMark, lexicon.Cross:
	case lexicon.Building:
		*to = append(*to, word{word: w, concept: known.Canonical})
	case lexicon.Plain, lexicon.Unit:
		if stem, ok := lexicon.StreetStem(w.Text); ok {
			s.typed = s.typed || !crossing
			suffix, _ := lexicon.Address(w.Text[len(stem):])
			s.kind(suffix.Canonical, crossing)
			w.Text, w.Raw = stem, stem
		}
		*to = append(*to, word{word: w, concept: lexicon.StreetName(w.Text)})
	}
}

// kind records what kind of street it is, unless sources translate the word for it freely.
func (s *segment) kind(canonical string, crossing bool) {
	if !crossing {
		s.kinds |= lexicon.StreetType(canonical)
	}
}

// spelled records a house number in letters, as in "One Market Plaza", and reports whether the word is one. Where the
// segment has digits too, the digits are the number: "Cinco de Mayo 12". Only Latin script spells house numbers; in other
// scripts, number words begin the names of streets.
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
			if _, ok := lexicon.StreetStem(w.Text); ok {
				return true
			}
			if _, ok := lexicon.Ordinal(w.Text); ok {
				return true
			}
		}
	}
	return false
}
