package measure

import (
	"cmp"
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

//go:embed words.txt
var wordsText string

// phrase is a word or more, and what they mean in their language: a number in digits, an English word, or a unit.
type phrase struct {
	words   []string
	reading string
	unit    Unit
}

// phrases are found by their first words, longest first.
type phrases map[string][]phrase

func (p phrases) add(form string, entry phrase) {
	entry.words = formWords(form)
	first := entry.words[0]
	p[first] = append(p[first], entry)
	slices.SortStableFunc(p[first], func(a, b phrase) int { return len(b.words) - len(a.words) })
}

// at returns the longest phrase at i and its number of words. Points may stand between these: "c. à s", "ст.л".
func (p phrases) at(ws []words.Word, i int) (phrase, int) {
	for _, entry := range p[ws[i].Lower] {
		used := 0
		for _, want := range entry.words {
			if used > 0 && i+used < len(ws) && ws[i+used].Lower == "." {
				used++
			}
			if i+used >= len(ws) || ws[i+used].Lower != want {
				used = 0
				break
			}
			used++
		}
		if used > 0 {
			return entry, used
		}
	}
	return phrase{}, 0
}

// unclear is the reading of a unit that has different meanings in different languages, where the language is not known.
const unclear = "unclear unit"

// tables has the words of all languages.
type tables struct {
	vocabulary map[string]phrases // of each language; "" has the phrases of all languages that mean nothing else in another
	units      phrases
	times      map[string]Unit // the units of time
}

var known = sync.OnceValue(parseTables)

func parseTables() *tables {
	vocabulary, times := map[string]phrases{"": {}}, map[string]Unit{}
	units := phrases{unclear: {{words: []string{unclear}, unit: Unit{Class: Unclear}}}}
	for tag, entry := range words.Lists(wordsText) {
		if vocabulary[tag] == nil {
			vocabulary[tag] = phrases{}
		}
		reading, forms, _ := strings.Cut(entry, "=")
		for form := range strings.SplitSeq(forms, ",") {
			form, own := strings.CutPrefix(form, "!")
			vocabulary[tag].add(form, phrase{reading: reading})
			if !own {
				vocabulary[""].add(form, phrase{reading: reading})
			}
		}
	}
	for name, form := range words.Lists(unitsText) {
		form, implied, _ := strings.Cut(form, "=")
		form, languages, some := strings.Cut(form, "@")
		u := newUnit(name, implied)
		form, u.short = strings.CutSuffix(form, ".")
		form, u.part = strings.CutSuffix(form, ".")
		switch {
		case u.seconds > 0 && !some:
			times[form] = u
		case !some:
			units.add(form, phrase{unit: u})
		}
		for tag, spoken := range vocabulary {
			switch {
			case !some:
			case slices.Contains(strings.Split(languages, ","), tag):
				spoken.add(form, phrase{reading: u.Name})
			case u.seconds == 0 && (tag == "" || len(form) == 1):
				spoken.add(form, phrase{reading: unclear})
			}
		}
	}
	return &tables{vocabulary: vocabulary, units: units, times: times}
}

// formWords returns the words of a form in a table, in lower case.
func formWords(form string) []string {
	var out []string
	for part := range strings.SplitSeq(form, "~") {
		if elisions.FindString(part) == part {
			out = append(out, part)
			continue
		}
		for _, w := range words.Split(words.Plain(part)) {
			out = append(out, w.Lower)
		}
	}
	return out
}

// languageOf returns the language of a text on a page in a language. A text in another script is in another language.
func languageOf(page language.Tag, text string) (tag string) {
	if base, confidence := page.Base(); confidence == language.Exact {
		tag = base.String()
	}
	if tag != "" && slices.ContainsFunc(words.Scripts, func(s string) bool { return strings.HasPrefix(s, tag+"=") }) {
		return tag
	}
	return cmp.Or(words.ScriptOf(text), tag)
}

// SplitIn is [Split] for a text in the language of a BCP 47 tag, "" for one that is not known. It sets the readings of the
// numbers, ranges and ambiguous units that the language decides. A number that may be two, as "1,250" without a language and a
// unit, has the reading "?", which no reader takes.
func SplitIn(tag, text string) []words.Word {
	parsed, _ := language.Parse(tag)
	vocabulary := known().vocabulary
	spoken, ok := vocabulary[languageOf(parsed, text)]
	if !ok {
		spoken = vocabulary[""]
	}
	ws := Split(text)
	out := make([]words.Word, 0, len(ws)+4)
	long := false
	for i := 0; i < len(ws); {
		if first, rest, ok := elided(ws[i]); ok {
			ws = slices.Replace(ws, i, i+1, first, rest)
		}
		w, used := ws[i], 1
		if p, n := spoken.at(ws, i); n > 0 && w.Reading == "" {
			used = n
			w.End, w.Reading = ws[i+n-1].End, p.reading
			w.Text, w.Lower = text[w.Start:w.End], strings.ToLower(words.Join(ws[i:i+n]))
			if p.reading[0] >= '0' && p.reading[0] <= '9' {
				w.Kind = words.Digits
			}
		}
		out = append(out, w)
		long = long || threeAtEnd.MatchString(w.Text)
		i += used
	}
	var signs separators
	if long {
		signs = separatorsOf(parsed) // which takes longer than all else
	}
	return readDigits(out, signs)
}

// elisions are the words that French and Italian join to the next one.
var elisions = lazyregexp.New(`^(?:d|l|un|dell|mezz)'`)

// fractions are the parts that Russian and German join to their unit.
var fractions = lazyregexp.New(`^(?:пол|dreiviertel|viertel)`)

// elided takes apart "d'un", "полстакана" and "viertelstunde".
func elided(w words.Word) (first, rest words.Word, ok bool) {
	size := len(elisions.FindString(w.Lower))
	if n := len(fractions.FindString(w.Lower)); n > 0 && isUnit(w.Lower[n:]) {
		size = n
	}
	if size == 0 || size >= len(w.Lower) || len(w.Lower) != len(w.Text) {
		return w, w, false
	}
	first, rest = w, w
	first.Text, first.Lower, first.End = w.Text[:size], w.Lower[:size], w.Start+size
	rest.Text, rest.Lower, rest.Start = w.Text[size:], w.Lower[size:], w.Start+size
	return first, rest, true
}

// separators are the signs of a language in numbers.
type separators struct{ decimal, group rune }

// separatorsOf returns the signs that CLDR has for a language, zero for one that is not known.
func separatorsOf(tag language.Tag) (s separators) {
	if tag == language.Und {
		return s
	}
	for _, r := range message.NewPrinter(tag).Sprint(number.Decimal(1234567.5)) {
		switch {
		case unicode.IsDigit(r):
		case s.group == 0:
			s.group = r
		default:
			s.decimal = r
		}
	}
	return s
}

var (
	threeDigits = lazyregexp.New(`^([1-9]\d{0,2})([.,])(\d{3})$`)
	threeAtEnd  = lazyregexp.New(`^(?:\d{1,3}[.,])?\d{3}$`)
	whole       = lazyregexp.New(`^\d{1,3}$`)
)

// readDigits sets the readings of numbers in digits, and joins those with spaces inside: "3 / 4", "1 500 g", ".5".
func readDigits(ws []words.Word, s separators) []words.Word {
	out := ws[:0]
	for i := 0; i < len(ws); {
		w := ws[i]
		reading, used := spaced(ws, i, s)
		switch {
		case used > 0:
			w.Text = words.Join(ws[i : i+used])
			w.Kind, w.Reading, w.Lower, w.End = words.Digits, reading, w.Text, ws[i+used-1].End
		case w.Kind == words.Digits && w.Reading == "":
			w.Reading = inLanguage(w.Text, s, unitAfter(ws, i+1))
		}
		out = append(out, w)
		i += max(1, used)
	}
	return out
}

// spaced reads a number of several words: "3 / 4", "1 500" before a unit, ".5".
func spaced(ws []words.Word, i int, s separators) (reading string, used int) {
	digits := func(n int) bool {
		return i+n < len(ws) && ws[i+n].Kind == words.Digits && whole.MatchString(ws[i+n].Text)
	}
	switch w := ws[i]; {
	case w.Lower == "." && digits(1) && ws[i+1].Start == w.End && (i == 0 || ws[i-1].End < w.Start || ws[i-1].Lower == "("):
		return "0." + ws[i+1].Text, 2
	case digits(0) && at(ws, i+1) == "/" && digits(2) && isFraction(w.Text, ws[i+2].Text):
		return w.Text + "/" + ws[i+2].Text, 3
	case digits(0) && digits(1) && unicode.IsSpace(s.group) && w.Text[0] != '0' && len(ws[i+1].Text) == 3:
		if isMeasure(ws, i+2) {
			return w.Text + ws[i+1].Text, 2
		}
	}
	return "", 0
}

func isFraction(over, under string) bool {
	a, errA := strconv.Atoi(over)
	b, errB := strconv.Atoi(under)
	return errA == nil && errB == nil && 0 < a && a < b && b <= 16
}

// isMeasure reports whether a unit of weight or volume is at i, and no vessel of that size.
func isMeasure(ws []words.Word, i int) bool {
	u, n := unitAt(ws, i)
	vessel, more := unitAt(ws, i+n)
	return n > 0 && u.Class == Measured && !(more > 0 && vessel.Class == Vessel)
}

// unitAfter returns the unit of a number, which may be the lower bound of a range.
func unitAfter(ws []words.Word, i int) Unit {
	for end := i + 3; i < end && i < len(ws); i++ {
		if u, n := ReadUnit(ws, i); n > 0 {
			return u
		}
		if w := at(ws, i); w != "-" && w != "~" && w != "to" && w != "or" && ws[i].Kind != words.Digits {
			break
		}
	}
	return Unit{}
}

// inLanguage returns the reading of a number with one sign before its last three digits: a decimal sign or a group separator.
// The language decides. Where it does not, the unit does, if only one of the numbers is usual for it. Where language and unit
// contradict each other, it is neither.
func inLanguage(text string, s separators, u Unit) string {
	m := threeDigits.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	sign := rune(m[2][0])
	forms, signs := []string{m[1] + m[3], m[1] + "." + m[3]}, []rune{s.group, s.decimal}
	fits := func(form string) bool {
		x, _ := strconv.ParseFloat(form, 64)
		return u.usual[0] <= x && x <= u.usual[1]
	}
	for i, form := range forms {
		alone, other := !fits(forms[1-i]), signs[1-i]
		if sign == signs[i] && (fits(form) || alone) || sign != other && fits(form) && alone {
			return form
		}
	}
	return "?"
}

// ReadPart reads the part that is added to the unit or the food before it: "taza y media", "כוס וחצי", "两杯半".
func ReadPart(ws []words.Word, i int) (part float64, used int) {
	if part, ok := added(ws, i); ok {
		return part, 1
	}
	if i < len(ws) && (ws[i].Text == "半" || ws[i].Text == "반") {
		return 0.5, 1
	}
	if at(ws, i) != "and" {
		return 0, 0
	}
	part, used = aPart(ws, i+1)
	if _, unit := ReadUnit(ws, i+1+used); used == 0 || part >= 1 || unit > 0 || seconds(ws, i+1+used) > 0 {
		return 0, 0
	}
	return part, used + 1
}

// Reads reports whether the word at i has a reading.
func Reads(ws []words.Word, i int, readings ...string) bool {
	return slices.Contains(readings, cmp.Or(at(ws, i), "\x00"))
}
