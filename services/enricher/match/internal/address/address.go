// Package address takes street addresses of any country apart, as far as that can be done without a gazetteer, and
// compares them.
package address

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

// Address is a parsed address.
type Address struct {
	// Street is the words of the street's name, without the word for street.
	Street []token.Token
	// Also is the words of crossing streets, buildings and localities.
	Also []token.Token
	// Numbers are the house numbers, mostly one.
	Numbers []Number
	// Direction is the quarter of the compass in the street's name.
	Direction Direction
	// Types is the set of the kinds of street in its name: see lexicon.StreetType.
	Types uint32
	// Words is every word, for telling which words of a name are local.
	Words []string
	// Row is how the street's name sounds.
	Row token.Row
	// Script is the script of the street's name.
	Script text.Script
}

// Present reports whether there is anything to compare.
func (a *Address) Present() bool { return len(a.Street) > 0 || len(a.Numbers) > 0 }

// Direction is a set of compass points.
type Direction uint8

var compass = map[string]Direction{"n": 1, "s": 2, "e": 4, "w": 8, "ne": 5, "nw": 9, "se": 6, "sw": 10, "in": 16, "out": 32}

// opposite reports whether two directions exclude each other.
func opposite(a, b Direction) bool {
	return a != 0 && b != 0 && a&b == 0 || a&1 != 0 && b&2 != 0 || a&2 != 0 && b&1 != 0 || a&4 != 0 && b&8 != 0 || a&8 != 0 && b&4 != 0
}

// Parse takes an address apart. city has the folded words of the city, which are no part of the street.
func Parse(raw string, city []string) Address {
	// A folded address is cut at separators: commas, semicolons, bars, brackets, and full stops that stand alone.
	segments := strings.FieldsFunc(strings.ReplaceAll(text.Fold(raw), " . ", ","), func(r rune) bool {
		return strings.ContainsRune(",;|()[]\n", r)
	})
	read := make([]segment, 0, len(segments))
	for _, s := range segments {
		if seg := readSegment(s); len(seg.plain)+len(seg.types)+len(seg.numbers)+len(seg.rest) > 0 {
			read = append(read, seg)
		}
	}
	return assemble(read, city)
}

// assemble decides which segment is the street's.
func assemble(read []segment, city []string) Address {
	var a Address
	at := streetSegment(read)
	for i := range read {
		s := &read[i]
		a.Words = append(a.Words, s.all...)
		switch {
		case i == at:
			a.take(s, city)
		case i == at+1 && at >= 0 && len(read[at].numbers) == 0 && s.leading && !s.postal && !s.typed:
			// The number has its own segment: "Rua Augusta, 123 - Consolacao", "ул. Тверская, д. 12".
			a.Numbers = append(a.Numbers, s.numbers...)
			a.also(s.plain, city)
		case i == at+1 && at >= 0 && len(read[at].numbers) == 1 && len(s.numbers) == 1 && !s.postal && !s.named():
			a.Numbers = append(a.Numbers, s.numbers...) // "ул. 8 Марта, 12"
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
	a.Direction, a.Types = s.direction, s.kinds
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
	var sounds []token.Sound
	for i := range a.Street {
		a.Script = max(a.Script, a.Street[i].Script)
		sounds = append(sounds, a.Street[i].Row.Sounds...)
	}
	a.Row = token.NewRow(sounds)
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
	return slices.DeleteFunc(slices.Clone(words), func(w word) bool { return slices.Contains(city, w.word.Text) })
}

// maxFields bounds the words of one segment.
const maxFields = 24

// field is a word of a segment before it is understood.
type field struct {
	words  []text.Word
	number Number
	isNum  bool
	hash   bool
}

// word returns the only word of a field, and false when it has none or several.
func (f *field) word() (text.Word, bool) {
	if len(f.words) != 1 {
		return text.Word{}, false
	}
	return f.words[0], true
}

// is reports whether a field is a word.
func (f *field) is(word string) bool {
	w, ok := f.word()
	return ok && w.Text == word
}

// fieldsOf cuts a segment at spaces and tells numbers from words.
func fieldsOf(s string) []field {
	var out []field
	for f := range strings.FieldsSeq(unglue(text.Spread(s))) {
		if len(out) == maxFields {
			break
		}
		if w, ok := ordinal(f); ok {
			out = append(out, field{words: []text.Word{w}})
			continue
		}
		hash := strings.HasPrefix(f, "#") && !strings.Contains(f, "-") // "#10-34" is a house in Colombia, "#5" a flat
		if f = strings.TrimPrefix(f, "n°"); f == "" {
			continue
		}
		if n, ok := parseNumber(strings.Trim(f, "#.:'\"")); ok {
			if last := len(out) - 1; last > 0 && !out[last-1].isNum && out[last].is("n") { // "via Roma n. 5"
				out = out[:last]
			}
			out = append(out, field{number: n, isNum: true, hash: hash})
			continue
		}
		if words := wordsOf(f); len(words) > 0 && !hash { // "#b" is a flat
			out = append(out, field{words: words})
		}
	}
	return out
}

// ordinal reads a number that names a street and not a house: a Cyrillic ordinal, "1-я" or "2й", or a Korean side street, "10길".
func ordinal(f string) (text.Word, bool) {
	head, ending := digits(f)
	ending = strings.TrimPrefix(ending, "-")
	if head == "" || ending == "" || ending[0] < utf8.RuneSelf {
		return text.Word{}, false
	}
	w := text.Words(head + ending)[0]
	_, ok := lexicon.Ordinal(w.Text)
	return w, ok || strings.HasSuffix(ending, "길")
}

// unglue separates the words of a folded segment that lost the space between them: "hwyste 375", "ste375",
// "northpoint".
func unglue(s string) string {
	var b strings.Builder
	for f := range strings.FieldsSeq(s) {
		if cut := seam(f); cut > 0 {
			b.WriteString(f[:cut] + " ")
			f = f[cut:]
		}
		b.WriteString(f + " ")
	}
	return b.String()
}

// seam returns the position at which two words meet in one, 0 for none: a word for street and a word for a suite, a word for a suite
// and a number, or a quarter of the compass and a word of the tables. A word that is in the tables as a whole is one word.
func seam(word string) int {
	if _, known := lexicon.Address(word); known || word[0] < 'a' || word[0] > 'z' {
		return 0
	}
	for cut := 2; cut < len(word)-1; cut++ {
		head, known := lexicon.Address(word[:cut])
		tail, _ := lexicon.Address(word[cut:])
		switch {
		case !known:
		case head.Part == lexicon.Unit && word[cut] >= '0' && word[cut] <= '9',
			head.Part == lexicon.Type && tail.Part == lexicon.Unit,
			head.Part == lexicon.Direction && cut > 3 && (tail.Part == lexicon.Building || lexicon.StreetName(word[cut:]) != ""):
			return cut
		}
	}
	return 0
}

// wordsOf returns the words of a field. A word for street that is abbreviated with a dash or a dot inside is one word: "пр-т", "v.le".
func wordsOf(f string) []text.Word {
	words := text.Words(f)
	if len(words) == 2 && strings.ContainsAny(f, "-.") {
		joined := words[0].Text + words[1].Text
		if known, ok := lexicon.Address(joined); ok && known.Part == lexicon.Type {
			return []text.Word{{Text: joined, Raw: joined, Script: words[0].Script}}
		}
	}
	return words
}

// unit reads "suite 200", "2nd floor", "unit b" at the start of fields and returns the number of fields read, zero
// when there is no unit.
func unit(fields []field) int {
	w, ok := fields[0].word()
	if !ok || len(fields) < 2 {
		return 0
	}
	next, single := fields[1].word()
	if _, ordinal := lexicon.Ordinal(w.Text); ordinal && single && isUnit(next.Text) {
		return 2
	}
	if isUnit(w.Text) && (fields[1].isNum || single && len([]rune(next.Text)) == 1) {
		return 2
	}
	return 0
}

func isUnit(word string) bool {
	known, ok := lexicon.Address(word)
	return ok && known.Part == lexicon.Unit
}

// Number is a house number or a range of them.
type Number struct {
	Low, High int
	// Digits is the length of the first number as written.
	Digits int
	// Parts has the numbers behind the first: the house of a block in "4-2-15", the flat, or the house of a flat, in "2/14".
	Parts [2]int
}

// parseNumber reads "12", "12a", "12-14", "293-b", "12/3", "37-16" (one number in Queens).
func parseNumber(s string) (Number, bool) {
	low, rest := digits(s)
	n, ok := value(low)
	if !ok {
		return Number{}, false
	}
	house := Number{Low: n, High: n, Digits: len(low)}
	if isLetterSuffix(rest) {
		return house, true
	}
	separator := rest[0]
	if !strings.ContainsRune("-/+.", rune(separator)) {
		return Number{}, false
	}
	second, tail := digits(rest[1:])
	if second == "" {
		return house, isLetterSuffix(strings.TrimPrefix(rest[1:], "-")) // "293-b"
	}
	high, ok := value(second)
	if !ok || !isLetterSuffix(tail) && tail[0] != '-' && tail[0] != '/' {
		return Number{}, false
	}
	if separator == '-' { // "12/3" is house 12, flat 3
		house.to(high, len(second))
		third, _ := digits(strings.TrimPrefix(tail, "-"))
		if last, ok := value(third); ok && tail[0] == '-' {
			house.Parts = [2]int{high, last}
		}
	} else {
		house.Parts = [2]int{high, -1}
	}
	return house, true
}

// to sets the upper end of a range, from the number behind a dash.
func (n *Number) to(high, digits int) {
	decades := 10
	if digits == 2 {
		decades = 100
	}
	switch {
	case high > n.Low && high-n.Low <= 100:
		n.High = high
	case high < n.Low && n.Digits > max(digits, 2) && digits <= 2 && high > n.Low%decades:
		n.High = n.Low - n.Low%decades + high // "201-7" is 201 to 207
	case n.Digits <= 3 && digits == 2:
		n.Low = n.Low*100 + high
		n.High = n.Low
	}
}

// value is the value of at most nine digits.
func value(digits string) (int, bool) {
	if digits == "" || len(digits) > 9 {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil
}

func digits(s string) (head, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// isLetterSuffix reports whether s is the letter of a house number: "12a", "12א", "12bis".
func isLetterSuffix(s string) bool {
	switch s {
	case "", "bis", "ter":
		return true
	}
	r := []rune(s)
	return len(r) == 1 && (r[0] >= 'a' && r[0] <= 'z' || r[0] > 0x7F)
}

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
	row       token.Row
	script    text.Script
}

// ParseCity reads the name of a city. The text behind a comma or a bracket is a region or a country, and ignored.
func ParseCity(raw string) City {
	folded := text.Fold(raw)
	if i := strings.IndexAny(folded, ",;(|"); i > 0 {
		folded = folded[:i]
	}
	var c City
	var sounds []token.Sound
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
	c.squeezed = string(slices.Compact([]rune(c.Canonical)))
	c.row = token.NewRow(sounds)
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
		token.SoundSimilarity(a.row, b.row, token.VowelsOf(a.script, b.script)) > 0.8
}

// abbreviates reports whether a is the initials of b: "la", "nyc".
func abbreviates(a, b *City) bool {
	return len(a.Words) == 1 && len(b.Words) > 1 && a.Words[0] == b.initials
}

func (c *City) within(address []string) bool {
	return !slices.ContainsFunc(c.Words, func(w string) bool { return !slices.Contains(address, w) })
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
