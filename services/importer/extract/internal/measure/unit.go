package measure

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

//go:embed units.txt
var unitsText string

// Class is the quantity that a unit measures.
type Class uint8

// The classes.
const (
	// Counted is a unit for counting pieces, or an amount such as a pinch.
	Counted Class = iota
	// Measured is weight or volume.
	Measured
	// Vessel is a container in which food is sold or served.
	Vessel
	// Unclear is a unit that has different meanings in different languages, where the language is not known.
	Unclear
)

// Unit is a unit of the kitchen.
type Unit struct {
	// Name is in English and in the singular.
	Name  string
	Class Class

	usual   [2]float64 // the least and the greatest amount that is usual, zero where none is known
	implied float64    // the number that the form names by itself, as a dual does
	alone   bool       // may stand without a number
	seconds float64    // of a unit of time
	short   bool       // the form of the unit of time is an abbreviation, after which a point does not end the sentence
	part    bool       // the form of the unit of time means it only before a smaller one: "1 u. 30 min"
	longest float64    // the greatest length of a food; a longer one is the size of a tin
}

// newUnit returns the unit of a line of the table, and the number that one form of it names.
func newUnit(name, implied string) (u Unit) {
	u.implied, _ = strconv.ParseFloat(implied, 64)
	class, rest, found := strings.Cut(name, " ")
	if u.Name = rest; !found || !strings.ContainsAny(class[:1], "=#~@<?") {
		u.Name = name
		return u
	}
	switch numbers := class[1:]; class[0] {
	case '=':
		u.Class, u.usual = Measured, [2]float64{0.05, 50}
		_, _ = fmt.Sscanf(numbers, "%g-%g", &u.usual[0], &u.usual[1])
	case '#':
		u.Class = Vessel
	case '?':
		u.Name, u.Class = "", Unclear
	case '~':
		u.alone = true
	case '<':
		u.longest, _ = strconv.ParseFloat(numbers, 64)
	case '@':
		u.seconds, _ = strconv.ParseFloat(numbers, 64)
	}
	return u
}

func isUnit(text string) bool {
	t := known()
	return len(t.units[text]) > 0 || t.times[text].seconds > 0
}

// seconds returns the length of the unit of time at i, 0 for another word.
func seconds(ws []words.Word, i int) float64 { return timeUnit(ws, i).seconds }

func timeUnit(ws []words.Word, i int) Unit {
	times := known().times
	if u := times[at(ws, i)]; u.seconds > 0 || i < 0 || i >= len(ws) {
		return u
	}
	return times[ws[i].Lower]
}

// sizes has the words that may stand between a number and its unit.
var sizes = words.Set(`generous heaping heaped level scant good big small large healthy tiny nice rounded full whole packed medium
hefty fat thick thin little teeny`)

// ReadUnit reads a unit with the points of an abbreviation, and words of size before and after it.
func ReadUnit(ws []words.Word, i int) (u Unit, used int) {
	for used < 3 && (isSized(ws, i+used) || used > 0 && at(ws, i+used) == ".") {
		used++
	}
	u, more := unitAt(ws, i+used)
	if more == 0 {
		return Unit{}, 0
	}
	used += more
	if at(ws, i+used) == "." && utf8.RuneCountInString(ws[i+used-1].Text) <= 6 && ws[i+used].Start == ws[i+used-1].End && i+used+1 < len(ws) {
		used++
	}
	for at(ws, i+used) == "heaping" && ws[i+used].Reading != "" || isSized(ws, i+used) && ofAny(ws, i+used+1) > 0 { // "lata pequena de"
		used++
	}
	return u, used
}

func isSized(ws []words.Word, i int) bool {
	return i < len(ws) && (sizes[at(ws, i)] || sizes[ws[i].Lower])
}

func unitAt(ws []words.Word, i int) (Unit, int) {
	if i >= len(ws) {
		return Unit{}, 0
	}
	if ws[i].Text == "T" && !(at(ws, i+1) == "-" && ws[i+1].Start == ws[i].End) { // T is a tablespoon, t a teaspoon
		return Unit{Name: "tablespoon", Class: Measured}, 1
	}
	units := known().units
	entry, used := units.at(ws, i)
	if e := units[ws[i].Reading]; used < 2 && len(e) > 0 && ws[i].Text != "T" { // the language of the text decides
		return e[len(e)-1].unit, 1
	}
	return entry.unit, used
}

// Amount is a number with a unit.
type Amount struct {
	Number Number
	Unit   Unit
	// Note is the size of a vessel, or a second amount: "14 ounce", "plus 1 tablespoon".
	Note string
	// Unclear reports whether the words have another reading as well, so that nothing of the amount may be used.
	Unclear bool
}

// ReadAmount reads "2 cups", "a pinch of", "two 400 gram cans of", "1 (14 oz) can", "1 cup plus 2 tablespoons". The word "of"
// is part of the amount. A number without a unit is an amount as well; a lone article is not.
func ReadAmount(ws []words.Word, i int) (a Amount, used int) {
	if unitsFirst[at(ws, i)] {
		return unitFirst(ws, i)
	}
	article := isArticle(at(ws, i))
	a.Number, used = ReadNumber(ws, i)
	if used == 0 || at(ws, i+used) == "%" {
		return Amount{}, 0
	}
	times := at(ws, i+used) == "x"
	if times {
		used++
	}
	if size, more := readSize(ws, i+used); more > 0 {
		used = a.sized(ws, i, used, size, more, times)
	} else {
		used += a.joint(ws, i, used)
		a.Unit, more = ReadUnit(ws, i+used)
		used += more
		if vessel, more := unitAt(ws, i+used); a.Unit.Class == Measured && more > 0 && vessel.Class == Vessel && at(ws, i+used) != "glass" {
			a.Note = vessel.Name
			used += more
		}
	}
	if article && a.Unit.Name == "" && a.Number == (Number{Min: 1, Max: 1}) {
		return Amount{}, 0
	}
	used = a.rest(ws, i, used)
	return a, used
}

// Certain reports whether an amount after a word of a name, with no sign between, cannot be a part of the name: it has a unit, or
// is a small whole number at the end of the line, as in "Uova 3".
func (a Amount) Certain(before words.Word, atEnd bool) bool {
	r, _ := utf8.DecodeRuneInString(before.Text)
	whole := a.Number.Min == a.Number.Max && a.Number.Min == math.Trunc(a.Number.Min) && a.Number.Min >= 1 && a.Number.Min <= 12
	return a.Unit.Name != "" || atEnd && (whole && before.Kind == words.Letters || !unicode.In(r, unicode.Latin, unicode.Common))
}

// Sized reports whether all words are of size: "large".
func Sized(ws []words.Word) bool {
	return !slices.ContainsFunc(ws, func(w words.Word) bool { return !sizes[w.Lower] && !sizes[w.Reading] })
}

// ReadUncounted is [ReadAmount] for a written line, in which a unit may stand without a number: "Pinch of", "taza y media",
// "כוס", "كوبان".
func ReadUncounted(ws []words.Word, i int) (a Amount, used int) {
	if a, used = ReadAmount(ws, i); used > 0 {
		// "1 gr. Zwiebel" is a large one, and no gram.
		small := a.Number.Max < 10 && slices.ContainsFunc(ws[i:i+used], func(w words.Word) bool { return w.Lower == "gr" })
		large := a.Number.Max > a.Unit.longest && a.Unit.longest > 0
		a.Unclear = a.Unclear || a.Unit.Class == Unclear || large || small && at(ws, i+used-1) == "."
		return a, used
	}
	if a.Unit, used = ReadUnit(ws, i); used == 0 || i < len(ws) && ws[i].Kind == words.Digits {
		return Amount{}, 0
	}
	_, part := ReadPart(ws, i+used)
	switch n := a.Unit.implied; {
	case n > 0 || part > 0:
		n = max(n, 1)
		a.Number = Number{Min: n, Max: n}
	case a.Unit.alone:
		a.Number.Vague = true
	default:
		return Amount{}, 0
	}
	used = a.rest(ws, i, used)
	return a, used
}

// sized reads the unit after the size of a vessel or a piece. A size without either, after a number without a sign, may be the
// end of a number in thousands.
func (a *Amount) sized(ws []words.Word, i, used int, size string, more int, times bool) int {
	var unit int
	if a.Unit, unit = ReadUnit(ws, i+used+more); unit == 0 {
		switch first := ws[i+used]; {
		case strings.HasSuffix(size, "inch"):
			return used // a part of the name
		case !times && inWords(ws, i) > 0 && inWords(ws, i+used) > 0: // "iki yüz gram" is 200
			a.Unclear = true
		case a.Number.Max != math.Trunc(a.Number.Max): // "1/2 1 כוסות", in which the direction of the text has turned the number around
			a.Unclear = true
		case !times && len(first.Text) == 3 && whole.MatchString(first.Text) && whole.MatchString(ws[i].Text) && at(ws, i+used+1) != "-":
			a.Unclear = true
		}
	}
	a.Note = size
	return used + more + unit
}

// rest reads what may follow a unit: the rest of a range, a half, a second amount, the size of a vessel.
func (a *Amount) rest(ws []words.Word, i, used int) int {
	if a.Unit.Name == "" {
		if at(ws, i) == "half" || a.Number.Max < 1 && !a.Number.Vague {
			used += ofAny(ws, i+used)
			if isArticle(at(ws, i+used)) { // "1/2 a red onion"
				used++
			}
		}
		return used
	}
	if Reads(ws, i+used, "-", "to", "or") && a.Number.Min == a.Number.Max { // "200 g to 250 g"
		if high, n := single(ws, i+used+1); n > 0 && high > a.Number.Max {
			if u, m := ReadUnit(ws, i+used+1+n); m > 0 && u.Name == a.Unit.Name {
				a.Number.Max, used = high, used+1+n+m
			}
		}
	}
	if more := second(ws, i+used); more > 0 {
		a.Note = strings.TrimSpace(a.Note + " " + textOf(ws[i+used:i+used+more]))
		used += more
	} else if part, more := ReadPart(ws, i+used); more > 0 && !a.Number.Vague {
		a.Number.Min, a.Number.Max, used = a.Number.Min+part, a.Number.Max+part, used+more
	}
	used += skip(ws, i+used, "分", "분") // "1/2個分" is what half a piece yields
	if size, more := ReadEach(ws, i+used); more > 0 && a.Unit.Class != Measured {
		a.Note = strings.TrimSpace(a.Note + " " + size)
		used += more
	}
	return used + ofAny(ws, i+used)
}

// ReadEach reads the size of each of several: "à 400 g", "de 400 g", "по 400 г".
func ReadEach(ws []words.Word, i int) (size string, used int) {
	for used < 2 && Reads(ws, i+used, "of", "to", "about", "between", "de", "à", "da", "di", "po", "по", "a") {
		used++
	}
	if used == 0 {
		return "", 0
	}
	size, more := readSize(ws, i+used)
	if more == 0 {
		return "", 0
	}
	return size, used + more
}

// joint returns the number of words between a number and its unit: the dash of "16-ounce" and "demi-cuillère", and "of" in
// "three quarters of a cup".
func (a *Amount) joint(ws []words.Word, i, used int) int {
	next, n := i+used, a.Number
	if at(ws, next) == "-" && ws[next].Start == ws[next-1].End && next+1 < len(ws) && ws[next+1].Start == ws[next].End {
		if _, unit := ReadUnit(ws, next+1); unit > 0 || ws[next-1].Kind == words.Letters {
			// "1 ½-inch" may be one piece of half an inch.
			a.Unclear = a.Unclear || used == 2 && n.Max > 1 && ws[i].End < ws[i+1].Start && ws[i].Kind == words.Digits
			return 1
		}
	}
	if more := ofAny(ws, next); more > 0 && n.Max < 1 {
		more += skip(ws, next+more, "a", "an")
		if _, unit := ReadUnit(ws, next+more); unit > 0 {
			return more
		}
	}
	return 0
}

// unitFirst reads "大さじ2".
func unitFirst(ws []words.Word, i int) (a Amount, used int) {
	u, used := unitAt(ws, i)
	n, more := ReadNumber(ws, i+used)
	if more == 0 {
		return Amount{}, 0
	}
	used += more
	if at(ws, i+used) == "杯" { // "大さじ2杯"
		used++
	}
	return Amount{Number: n, Unit: u}, used + ofAny(ws, i+used)
}

func ofAny(ws []words.Word, i int) int {
	return skip(ws, i, "of", "de", "di", "d'", "的", "の", "의")
}

// readSize reads the size of a vessel, which stands before it: "400 gram" before "cans", "(14 oz)".
func readSize(ws []words.Word, i int) (string, int) {
	open := skip(ws, i, "(")
	_, n := single(ws, i+open)
	if n == 0 || isArticle(at(ws, i+open)) {
		return "", 0
	}
	dash := skip(ws, i+open+n, "-")
	u, m := ReadUnit(ws, i+open+n+dash)
	used := open + n + dash + m
	if m == 0 || u.Class != Measured && u.Name != "inch" {
		return "", 0
	}
	text := textOf(ws[i+open : i+used])
	if open == 1 {
		if at(ws, i+used) != ")" {
			return "", 0
		}
		used++
	}
	return text, used
}

// second reads "plus 2 tablespoons", "and 1 tablespoon", "/ 250 ml" and "(250 ml)" after an amount.
func second(ws []words.Word, i int) (used int) {
	switch at(ws, i) {
	case "plus", "and", "+", "/":
		if _, used = readSize(ws, i+1); used > 0 {
			used++
		}
	case "(":
		_, used = readSize(ws, i)
	}
	return used
}

func textOf(ws []words.Word) string { return strings.Trim(words.Join(ws), "()/ ") }

// ReadStep adds to a step in a language the times and temperatures that its text names, in their order.
func ReadStep(language string, step *recipe.Step) {
	ws := SplitIn(language, words.Plain(step.Text))
	for i := 0; i < len(ws); {
		used := mark(step, ws, i)
		i += max(1, used)
	}
}

func mark(step *recipe.Step, ws []words.Word, i int) int {
	if t, used := ReadTemperature(ws, i); used > 0 && len(step.Temperatures) < recipe.MaxMarks {
		step.Temperatures = append(step.Temperatures, recipe.Temperature{
			Degrees: t.Min, MaxDegrees: t.Max, Scale: t.Scale, Level: t.Level, Raw: raw(ws[i : i+used]),
		})
		return used
	}
	if len(step.Times) == recipe.MaxMarks {
		return 0
	}
	if d, used := ReadDuration(ws, i); used > 0 {
		step.Times = append(step.Times, recipe.Duration{MinSec: d.Min, MaxSec: d.Max, Raw: raw(ws[i : i+used])})
		return used
	}
	if sign, used := ReadUntil(ws, i); used > 0 {
		step.Times = append(step.Times, recipe.Duration{Until: sign, Raw: raw(ws[i : i+used])})
		return 1 // the sign may contain a time
	}
	return 0
}

// raw returns words as written in their text.
func raw(ws []words.Word) string { return redact.Clip(words.Join(ws), recipe.MaxNote) }

// Split is [words.Split], and takes apart words that scripts without spaces write as one: "250克奶油", "两个鸡蛋",
// "醤油大さじ2".
func Split(text string) []words.Word {
	ws := words.Split(text)
	out := ws[:0:0]
	for i, w := range ws {
		if w.Kind != words.Letters || !unspaced(w.Text) {
			if out != nil {
				out = append(out, w)
			}
			continue
		}
		if out == nil {
			out = append(make([]words.Word, 0, len(ws)+4), ws[:i]...)
		}
		out = unglue(out, w, i+1 < len(ws) && ws[i+1].Kind == words.Digits)
	}
	if out == nil {
		return ws
	}
	return out
}

// unspaced reports whether a word has a letter of a script whose words are not separated.
func unspaced(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return r > unicode.MaxLatin1 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai)
	})
}

// unglue appends the parts of a word. It separates a number from the unit after it, or before it in languages that write
// the unit first, and a number in words from the unit after it.
func unglue(out []words.Word, w words.Word, beforeNumber bool) []words.Word {
	if latin := len(w.Text) - len(strings.TrimLeftFunc(w.Text, isLatin)); latin > 0 {
		out, w = cutOff(out, w, latin, words.Letters) // "gの"
	}
	if m := spelledFraction.FindStringSubmatch(w.Text); m != nil {
		out, w = cutOff(out, w, len(m[0]), words.Digits)
		under, _ := parseNumeral(m[1])
		over, _ := parseNumeral(m[2])
		out[len(out)-1].Reading = fmt.Sprintf("%g/%g", over, under)
	} else if m := koreanNumber.FindStringSubmatch(w.Text); len(m) > 0 && len(known().units[m[2]]) > 0 {
		out, w = cutOff(out, w, len(m[1]), words.Letters)
	}
	if afterNumber(out, w) {
		out, w = cutOff(out, w, gluedUnit(w.Text), words.Letters)
		for _, of := range []string{"的", "の"} {
			if strings.HasPrefix(w.Text, of) {
				out, w = cutOff(out, w, len(of), words.Letters)
			}
		}
	}
	out, w = unglueNumber(out, w)
	if len(out) > 0 && out[len(out)-1].End == w.Start && strings.HasPrefix(w.Text, "半") && gluedUnit(out[len(out)-1].Text) > 0 {
		out, w = cutOff(out, w, len("半"), words.Digits) // "两杯半面粉"
	}
	for first := range unitsFirst {
		if rest := strings.TrimSuffix(w.Text, first); beforeNumber && len(rest) < len(w.Text) {
			out, w = cutOff(out, w, len(rest), words.Letters)
			break
		}
	}
	if w.Text != "" {
		out = append(out, w)
	}
	return out
}

// unglueNumber appends what precedes the first number in words that a unit follows, the number and the unit.
func unglueNumber(out []words.Word, w words.Word) ([]words.Word, words.Word) {
	next := 0 // after the last number, so that a long number is read once
	for at, r := range w.Text {
		if at < next || !isNumeral(r) {
			continue
		}
		digits := len(w.Text[at:]) - len(strings.TrimLeftFunc(w.Text[at:], isNumeral))
		next = at + digits
		rest := w.Text[next:]
		if size := gluedUnit(rest); size > 0 && rest[:size] != "合" && w.Text[at:next+size] != "半分" { // 百合 is a lily, 半分 a half
			out, w = cutOff(out, w, at, words.Letters)
			out, w = cutOff(out, w, digits, words.Digits)
			return cutOff(out, w, size, words.Letters)
		}
	}
	return out, w
}

var (
	spelledFraction = lazyregexp.New(`^([一二三四五六七八九十]+)分[の之]([一二三四五六七八九十]+)`)
	koreanNumber    = lazyregexp.New(`^([반한두세네])(\p{Hangul}+)$`)
)

func isLatin(r rune) bool { return unicode.Is(unicode.Latin, r) }

// afterNumber reports whether the word before w is a number, with no space between the two if the script has spaces.
func afterNumber(before []words.Word, w words.Word) bool {
	if len(before) == 0 || before[len(before)-1].Kind != words.Digits {
		return false
	}
	first, _ := utf8.DecodeRuneInString(w.Text)
	return before[len(before)-1].End == w.Start || !unicode.Is(unicode.Hangul, first)
}

// cutOff appends the first bytes of a word, if any, and returns the rest of the word.
func cutOff(out []words.Word, w words.Word, size int, kind words.Kind) ([]words.Word, words.Word) {
	if size > 0 {
		text := w.Text[:size]
		out = append(out, words.Word{Text: text, Lower: strings.ToLower(text), Start: w.Start, End: w.Start + size, Kind: kind})
	}
	w.Text, w.Start = w.Text[size:], w.Start+size
	w.Lower = strings.ToLower(w.Text)
	return out, w
}

// gluedUnit returns the length of the longest unit of a script without spaces that a text begins with.
func gluedUnit(text string) int {
	for size := min(len(text), longestGlued); size > 0; size-- {
		if size < len(text) && !utf8.RuneStart(text[size]) {
			continue
		}
		unit := text[:size]
		if (isUnit(unit) || unit == "度") && unspaced(unit) && endsLetter(text[size:]) {
			return size
		}
	}
	return 0
}

// longestGlued is the length in bytes of the longest unit that is looked for.
const longestGlued = 36

// endsLetter reports whether a text does not begin with a mark that belongs to the letter before, such as a Thai
// vowel.
func endsLetter(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return !unicode.IsMark(r)
}

// unitsFirst are the units that stand before their numbers.
var unitsFirst = words.Set("大さじ 小さじ おおさじ こさじ 大匙 小匙 カップ")

// numerals are the numbers in words that are read before a unit.
var numerals = map[rune]float64{
	'半': 0.5, '一': 1, '二': 2, '两': 2, '兩': 2, '三': 3, '四': 4, '五': 5, '六': 6, '七': 7, '八': 8, '九': 9, '十': 10, '百': 100,
}

func isNumeral(r rune) bool { _, ok := numerals[r]; return ok }

// parseNumeral reads "两", "十二", "三十五", "二百".
func parseNumeral(text string) (float64, bool) {
	sum, digit := 0.0, 0.0
	for _, r := range text {
		switch x, ok := numerals[r]; {
		case !ok:
			return 0, false
		case x >= 10:
			sum, digit = sum+max(digit, 1)*x, 0
		default:
			digit = x
		}
	}
	return sum + digit, text != ""
}
