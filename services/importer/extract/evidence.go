package extract

import (
	"index/suffixarray"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// The largest distance, in words, of an amount before its item ("two cups of the flour") and after it ("the flour,
// about two cups").
const (
	nearBefore = 10
	nearAfter  = 6
)

// gap is the distance between two texts, so that no amount is near an item of another text.
const gap = nearBefore + nearAfter

// evidence is the words of a source, spoken and written. It reports whether the source bears out a claim: an item, an amount
// of an item, a number, a time, a temperature.
type evidence struct {
	language   string
	next       int // the position of the next word
	places     map[string][]int
	numbers    map[float64][]int // the positions of the words of each
	units      map[string][]int
	seconds    map[int]bool
	degrees    map[float64]bool
	levels     map[string]bool
	instructed bool // a text was left out because it addresses a model
}

// newEvidence returns a source without words, in the language tag.
func newEvidence(tag string) *evidence {
	return &evidence{
		language: tag,
		places:   map[string][]int{}, numbers: map[float64][]int{}, units: map[string][]int{},
		seconds: map[int]bool{}, degrees: map[float64]bool{}, levels: map[string]bool{},
	}
}

// add adds a sentence or a line, unless it addresses a model. alone reports whether its amounts are unrelated to the texts
// before and after it, as in a list.
func (s *evidence) add(text string, alone bool) {
	text = words.Plain(text)
	if words.Speaks(text) {
		s.instructed = true
		return
	}
	ws := measure.SplitIn(s.language, text)
	stems := words.Stems(ws)
	for i := range ws {
		at := s.next + i
		if ws[i].Kind != words.Mark {
			s.places[stems[i]] = append(s.places[stems[i]], at)
		}
		s.number(ws, i, at)
		if u, used := measure.ReadUnit(ws, i); used > 0 {
			s.units[u.Name] = append(s.units[u.Name], at+used-1)
		}
		if d, used := measure.ReadDuration(ws, i); used > 0 {
			s.seconds[d.Min], s.seconds[d.Max] = true, true
		}
		if t, used := measure.ReadTemperature(ws, i); used > 0 {
			s.degrees[t.Min], s.degrees[t.Max], s.levels[t.Level] = true, true, true
		}
	}
	s.next += len(ws)
	if alone {
		s.next += gap
	}
}

// number stores the numbers that begin at a word, in every reading that digits may have. An article is the number one only before
// a unit.
func (s *evidence) number(ws []words.Word, i, at int) {
	said := measure.Readings(ws[i].Text)
	n, used := measure.ReadNumber(ws, i)
	if ws[i].Kind == words.Letters && n.Min == 1 && used == 1 && ws[i].Lower != "one" {
		if _, unit := measure.ReadUnit(ws, i+1); unit == 0 {
			used = 0
		}
	}
	if used > 0 && !n.Vague {
		said = append(said, n.Min, n.Max)
	}
	if a, used := measure.ReadUncounted(ws, i); used > 0 && a.Unit.Name != "" && !a.Number.Vague { // "taza y media"
		said = append(said, a.Number.Min, a.Number.Max)
	}
	for _, x := range said {
		s.numbers[round(x)] = append(s.numbers[round(x)], at)
	}
}

// round makes 1/3 and 0.333 the same.
func round(x float64) float64 { return math.Round(x*100) / 100 }

// ingredient returns which of "item", "qty" and "unit" the source does not bear out.
func (s *evidence) ingredient(item, qty, unit string) []string {
	var out []string
	places := s.head(item)
	if len(places) == 0 {
		out = append(out, "item")
	}
	if qty != "" && !s.hasAmount(qty, places) {
		out = append(out, "qty")
	}
	if unit != "" && !s.hasUnit(unit, places) {
		out = append(out, "unit")
	}
	return out
}

// head returns the positions of the noun of an item: the last word of "extra virgin olive oil", and the word before the
// comma of "flour, sifted". Where the order is reversed, as in "aceite de oliva", the first word counts as well.
func (s *evidence) head(item string) []int {
	ws := measure.SplitIn(s.language, words.Plain(item))
	from, end := 0, len(ws)
	for i, w := range ws {
		if i > 0 && (w.Kind == words.Mark && w.Lower != "-" && w.Lower != "%" || breaks[w.Lower]) {
			end = i
			break
		}
		if w.Lower == "of" && i+1 < len(ws) {
			from = i + 1
		}
	}
	for i := end - 1; i >= from; i-- {
		if ws[i].Kind == words.Letters && !states[ws[i].Lower] {
			if places := s.places[words.Stem(ws[i].Lower)]; len(places) > 0 {
				return places
			}
			return s.first(ws[:end])
		}
	}
	if end < len(ws) && end > from { // "fresh or dried oregano"
		return s.head(words.Join(ws[end+1:]))
	}
	return nil
}

// first returns the positions of the word before "de" and the like.
func (s *evidence) first(ws []words.Word) []int {
	for i := 1; i < len(ws); i++ {
		switch ws[i].Lower {
		case "de", "di", "d'", "do":
			return s.places[words.Stem(ws[i-1].Lower)]
		}
	}
	return nil
}

var (
	breaks = words.Set("for with to or in at from about plus and")
	states = words.Set(`
chopped diced minced sliced grated shredded peeled crushed melted softened divided optional fresh dried ground
cooked raw whole finely roughly thinly beaten sifted packed drained rinsed pieces chunks`)
)

// hasAmount reports whether every number of a quantity is near one of the positions, or anywhere when there are no
// positions.
func (s *evidence) hasAmount(qty string, places []int) bool {
	found := false
	for n := range s.numbersOf(qty) {
		found = true
		for _, x := range []float64{round(n.Min), round(n.Max)} {
			if !near(places, s.numbers[x]) && (len(places) > 0 || !s.said(x)) {
				return false
			}
		}
	}
	return found || s.hasMost(qty)
}

// numbersOf yields the numbers in a text, and whether each is a word, such as an article.
func (s *evidence) numbersOf(text string) iter.Seq2[measure.Number, bool] {
	ws := measure.SplitIn(s.language, words.Plain(text))
	return func(yield func(measure.Number, bool) bool) {
		for i := 0; i < len(ws); {
			n, used := measure.ReadNumber(ws, i)
			i += max(1, used)
			if used > 0 && !yield(n, used == 1 && ws[i-1].Kind == words.Letters) {
				return
			}
		}
	}
}

func (s *evidence) hasUnit(unit string, places []int) bool {
	ws := measure.SplitIn(s.language, words.Plain(unit))
	u, used := measure.ReadUnit(ws, 0)
	if used == 0 {
		return s.hasMost(unit)
	}
	return len(places) == 0 && len(s.units[u.Name]) > 0 || near(places, s.units[u.Name])
}

// near reports whether one of the amounts is near one of the places. Both are positions in order.
func near(places, amounts []int) bool {
	for _, place := range places {
		for len(amounts) > 0 && amounts[0] < place-nearBefore {
			amounts = amounts[1:]
		}
		if len(amounts) > 0 && amounts[0] <= place+nearAfter {
			return true
		}
	}
	return false
}

// said reports whether the source has a number.
func (s *evidence) said(x float64) bool { return len(s.numbers[x]) > 0 }

// hasMost reports whether at least half of the words that carry meaning occur in the source.
func (s *evidence) hasMost(text string) bool {
	total, found := 0, 0
	for _, w := range measure.SplitIn(s.language, words.Plain(text)) {
		if w.Kind != words.Letters || english.IsStopWord(w.Lower) || strings.HasPrefix(w.Lower, "'") {
			continue
		}
		total++
		if len(s.places[words.Stem(w.Lower)]) > 0 {
			found++
		}
	}
	return 2*found >= total
}

// invented reports whether nothing of a verified recipe is in the source. In English the ingredients decide, because a long talk on any
// subject has the verbs and numbers of steps. In other languages an item may be said in a form whose stem is not known, so that amounts,
// steps, and words that begin alike count as well.
func (s *evidence) invented(r *recipe.Recipe) bool {
	base, _ := language.Make(r.Language).Base() // "en" without a language
	isEnglish := base.String() == "en"
	var said *suffixarray.Index // finds a part of a word in a time that does not grow with the source
	if !isEnglish {
		said = suffixarray.New([]byte(strings.Join(slices.Collect(maps.Keys(s.places)), " ")))
	}
	for _, i := range r.Ingredients {
		amount := i.Qty != "" && !slices.Contains(i.Unverified, "qty")
		if !slices.Contains(i.Unverified, "item") || !isEnglish && (amount || alludes(said, i.Item)) {
			return false
		}
	}
	step := slices.ContainsFunc(r.Steps, func(step recipe.Step) bool { return !slices.Contains(step.Unverified, "text") })
	return !step || isEnglish && len(r.Ingredients) > 0
}

// alludes reports whether a word of a text, without its last letter, is in a word of the source.
func alludes(source *suffixarray.Index, text string) bool {
	return slices.ContainsFunc(words.Split(words.Plain(text)), func(w words.Word) bool {
		_, last := utf8.DecodeLastRuneInString(w.Lower)
		begin := w.Lower[:len(w.Lower)-last]
		return utf8.RuneCountInString(begin) >= 2 && len(source.Lookup([]byte(begin), 1)) > 0
	})
}

// hasNumbers reports whether all numbers in a text occur in the source.
func (s *evidence) hasNumbers(text string) bool {
	for n, isWord := range s.numbersOf(text) {
		if !isWord && !n.Vague && (!s.said(round(n.Min)) || !s.said(round(n.Max))) { // hasMost checks words
			return false
		}
	}
	return true
}

// hasDuration reports whether the source names the bounds low and high of a duration, in seconds. A bound of 0 needs no naming.
func (s *evidence) hasDuration(low, high int) bool {
	return (low == 0 || s.seconds[low]) && (high == 0 || s.seconds[high])
}

// hasTemperature reports whether the source names both degrees and the level; 0 and "" are none.
func (s *evidence) hasTemperature(low, high float64, level string) bool {
	return (low == 0 || s.degrees[low]) && (high == 0 || s.degrees[high]) && (level == "" || s.levels[level] || s.hasMost(level))
}
