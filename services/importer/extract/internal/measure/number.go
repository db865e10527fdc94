// Package measure reads numbers, units, durations and temperatures out of words.
//
// Every reader takes the words of a text and the index at which to begin, and returns a value and the number of words that
// it took; zero words means that there was no value.
package measure

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Number is an amount, or a range of amounts.
type Number struct {
	Min, Max float64
	// Vague reports whether the words name no certain number: "a few", "some". Min and Max are 0 then.
	Vague bool
}

// Text returns the number in digits: "2", "1/2", "1 1/2", "2-3"; "" when it is vague.
func (n Number) Text() string {
	switch {
	case n.Vague:
		return ""
	case n.Min == n.Max:
		return digits(n.Min)
	}
	return digits(n.Min) + "-" + digits(n.Max)
}

func digits(x float64) string {
	whole, part := math.Modf(x)
	for _, d := range []float64{2, 3, 4, 8} {
		if over := math.Round(part * d); over > 0 && over < d && math.Abs(part-over/d) < 0.004 {
			text := strconv.Itoa(int(over)) + "/" + strconv.Itoa(int(d))
			if whole > 0 {
				text = strconv.FormatFloat(whole, 'f', 0, 64) + " " + text
			}
			return text
		}
	}
	return strconv.FormatFloat(math.Round(x*1000)/1000, 'f', -1, 64)
}

var ones = map[string]float64{
	"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
	"eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17,
	"eighteen": 18, "nineteen": 19,
}

var tens = map[string]float64{
	"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}

var parts = map[string]float64{
	"half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4, "fourths": 4,
	"fifth": 5, "fifths": 5, "eighth": 8, "eighths": 8,
}

// ReadNumber reads a number or a range: "2", "1 1/2", "two and a half", "half a", "2-3", "two or three", "a couple of".
func ReadNumber(ws []words.Word, i int) (n Number, used int) {
	switch at(ws, i) {
	case "between", "from", "of":
		return between(ws, i)
	}
	if used := vague(ws, i); used > 0 {
		return Number{Vague: true}, used
	}
	low, used := single(ws, i)
	if used == 0 {
		return Number{}, 0
	}
	if high, more := upper(ws, i, used, low); more > 0 {
		return Number{Min: low, Max: high}, used + more
	}
	return Number{Min: low, Max: low}, used
}

// between reads "between 2 and 3" and, in languages in which the word means "of" as well, "de 2 a 3".
func between(ws []words.Word, i int) (Number, int) {
	low, used := single(ws, i+1)
	if w := at(ws, i+1+used); used > 0 && (w == "and" || w == "to" || w == "-") {
		if high, more := single(ws, i+2+used); more > 0 && high > low {
			return Number{Min: low, Max: high}, used + more + 2
		}
	}
	return Number{}, 0
}

// upper reads the upper bound of a range after its lower one: "- 3", "or three".
func upper(ws []words.Word, i, used int, low float64) (high float64, more int) {
	switch at(ws, i+used) {
	case "-", "to", "or", "~":
		sign := 1 + skip(ws, i+used+1, "to", "or") // "6- to 8-ounce"
		high, more := single(ws, i+used+sign)
		if more == 0 || high <= low || isDate(ws, i, i+used+sign+more) {
			return 0, 0
		}
		return high, more + sign
	}
	// "four five minutes" is a range in speech, and "beş altı" in writing.
	if low < 1 || low > 12 || used > 1 || isArticle(ws[i].Lower) || inWords(ws, i) == 0 && ws[i].Kind != words.Letters {
		return 0, 0
	}
	if high := cmp.Or(ones[at(ws, i+1)], inWords(ws, i+1)); high == low+1 {
		return high, 1
	}
	return 0, 0
}

// inWords returns the number that a word of the language of the text names, 0 for another word or digits.
func inWords(ws []words.Word, i int) float64 {
	if i >= len(ws) || ws[i].Kind != words.Digits {
		return 0
	}
	if r, _ := utf8.DecodeRuneInString(ws[i].Text); !unicode.IsLetter(r) {
		return 0
	}
	x, _ := ParseDigits(ws[i].Reading)
	return x
}

// isDate reports whether words are part of a date such as "1-2-2020", and no range.
func isDate(ws []words.Word, from, to int) bool {
	return from > 0 && (at(ws, from-1) == "-" || at(ws, from-1) == "/") && ws[from-1].End == ws[from].Start ||
		at(ws, to) == "-" && to+1 < len(ws) && ws[to+1].Kind == words.Digits && ws[to].End == ws[to+1].Start
}

func vague(ws []words.Word, i int) int {
	used := skip(ws, i, "a", "another")
	if Reads(ws, i+used, "few", "several") {
		return used + 1
	}
	return 0
}

// single reads one number without a range, or dozens.
func single(ws []words.Word, i int) (float64, int) {
	x, used := one(ws, i)
	if dash := skip(ws, i+used, "-"); used > 0 && at(ws, i+used+dash) == "dozen" { // "demi-douzaine"
		x, used = x*12, used+dash+1
	}
	if part, more := ReadPart(ws, i+used); more > 0 && used > 0 && at(ws, i+used-1) == "dozen" { // "docena y media"
		return x + 12*part, used + more
	}
	return x, used
}

func one(ws []words.Word, i int) (float64, int) {
	if i >= len(ws) {
		return 0, 0
	}
	if ws[i].Kind == words.Digits {
		x, used := inDigits(ws, i)
		if part, ok := added(ws, i+used); ok && used > 0 {
			return x + part, used + 1
		}
		return x, used
	}
	if x, used := spelled(ws, i); used > 0 {
		return x, used
	}
	return articles(ws, i)
}

func inDigits(ws []words.Word, i int) (float64, int) {
	x, ok := ParseDigits(cmp.Or(ws[i].Reading, ws[i].Text))
	if !ok {
		return 0, 0
	}
	if d := parts[at(ws, i+1)]; d > x && x >= 1 {
		return x / d, 2
	}
	if x != math.Trunc(x) {
		return x, 1
	}
	if tens := inWords(ws, i); tens >= 20 && tens < 100 && math.Mod(tens, 10) == 0 { // "двадцать пять", "vingt-cinq", "trinta e cinco"
		skip := i + 1
		if Reads(ws, skip, "and", "-") {
			skip++
		}
		if unit := inWords(ws, skip); unit >= 1 && unit < 10 && unit == math.Trunc(unit) {
			return x + unit, skip + 1 - i
		}
	}
	part, more := fraction(ws, i+1)
	if more == 1 && x == 1 && ws[i].Reading != "" && ws[i+1].Reading != "" { // "eine dreiviertel"
		x = 0
	}
	return x + part, 1 + more
}

// fraction reads what follows a whole number: "1/2", "and a half", "-1/2".
func fraction(ws []words.Word, i int) (part float64, used int) {
	text := ""
	switch {
	case at(ws, i) == "and":
		if part, used = aPart(ws, i+1); used > 0 {
			used++
		}
		return part, used
	case i < len(ws) && ws[i].Kind == words.Digits:
		text, used = cmp.Or(ws[i].Reading, ws[i].Text), 1
	case at(ws, i) == "-" && i+1 < len(ws) && ws[i+1].Kind == words.Digits && strings.Contains(ws[i+1].Text, "/"):
		text, used = ws[i+1].Text, 2 // "1-1/2" is one and a half; "1-1½" is a range.
	}
	if part, ok := ParseDigits(text); ok && part > 0 && part < 1 {
		return part, used
	}
	return 0, 0
}

// spelled reads a number in words.
func spelled(ws []words.Word, i int) (float64, int) {
	x, used := underHundred(ws, i)
	if used == 0 && at(ws, i) == "a" && (at(ws, i+1) == "hundred" || at(ws, i+1) == "thousand" || at(ws, i+1) == "dozen") {
		x, used = 1, 1
	}
	switch {
	case used == 0 && at(ws, i) == "dozen":
		return 12, 1
	case used == 0:
		return 0, 0
	}
	switch at(ws, i+used) {
	case "hundred":
		x, used = hundreds(ws, i+used+1, x, used+1)
	case "thousand":
		return x * 1000, used + 1
	default:
		if y, more := spoken(ws, i, x, used); more > 0 {
			return y, more
		}
		if part, more := aPart(ws, i); more > used {
			return part, more
		}
	}
	if at(ws, i+used) == "and" {
		if part, more := aPart(ws, i+used+1); more > 0 {
			return x + part, used + 1 + more
		}
	}
	return x, used
}

// hundreds reads the words after "hundred": "and fifty".
func hundreds(ws []words.Word, i int, x float64, used int) (float64, int) {
	and := skip(ws, i, "and")
	if rest, more := underHundred(ws, i+and); more > 0 {
		return 100*x + rest, used + and + more
	}
	return 100 * x, used
}

// spoken reads "three fifty" and "four twenty five", which are hundreds in speech.
func spoken(ws []words.Word, i int, x float64, used int) (float64, int) {
	rest, ok := tens[at(ws, i+1)]
	if !ok || x < 1 || x > 9 || used != 1 {
		return 0, 0
	}
	if unit, ok := ones[at(ws, i+2)]; ok && unit > 0 && unit < 10 && at(ws, i+3) != "minutes" {
		return x*100 + rest + unit, 3
	}
	return x*100 + rest, 2
}

func underHundred(ws []words.Word, i int) (float64, int) {
	w := at(ws, i)
	if x, ok := ones[w]; ok {
		return x, 1
	}
	x, ok := tens[w]
	if !ok {
		return 0, 0
	}
	next := i + 1 + skip(ws, i+1, "-")
	if unit, ok := ones[at(ws, next)]; ok && unit > 0 && unit < 10 {
		return x + unit, next - i + 1
	}
	return x, 1
}

// articles reads numbers that begin with an article or a part: "a", "half a", "a quarter of a", "a couple of".
func articles(ws []words.Word, i int) (float64, int) {
	if part, used := aPart(ws, i); used > 0 {
		if of := skip(ws, i+used, "of"); isArticle(at(ws, i+used+of)) {
			used += of + 1
		}
		return part, used
	}
	if !isArticle(at(ws, i)) && at(ws, i) != "another" {
		if at(ws, i) == "couple" {
			return 2, 1 + skip(ws, i+1, "of")
		}
		return 0, 0
	}
	if next := at(ws, i+2); sizes[at(ws, i+1)] && (parts[next] > 0 || next == "couple") {
		short := append([]words.Word{ws[i]}, ws[i+2:min(len(ws), i+8)]...) // "a generous half"
		x, used := articles(short, 0)
		return x, used + 1
	}
	switch at(ws, i+1) {
	case "couple":
		return 2, 2 + skip(ws, i+2, "of")
	case "half", "quarter", "third":
		if x, used := articles(ws, i+1); used > 0 {
			return x, used + 1
		}
	}
	return 1, 1
}

// aPart reads "half", "a half", "a quarter", "one third", "three quarters", "3/4", "½".
func aPart(ws []words.Word, i int) (float64, int) {
	used, over := 0, 1.0
	if x, ok := ones[at(ws, i)]; ok && x > 0 {
		used, over = 1, x
	} else if isArticle(at(ws, i)) || at(ws, i) == "1" {
		used = 1
	}
	if d, ok := parts[at(ws, i+used)]; ok && over < d {
		return over / d, used + 1
	}
	if used < 2 && i < len(ws) && ws[i].Kind == words.Digits {
		if x, ok := ParseDigits(cmp.Or(ws[i].Reading, ws[i].Text)); ok && x > 0 && x < 1 {
			return x, 1
		}
	}
	return 0, 0
}

// added reads the half of "bir buçuk", which is added to the number or the unit before it.
func added(ws []words.Word, i int) (float64, bool) {
	part, ok := strings.CutPrefix(at(ws, i), "+")
	if !ok || part == "" {
		return 0, false
	}
	return ParseDigits(part)
}

func isArticle(w string) bool { return w == "a" || w == "an" }

// skip returns 1 when the word at i is one of some, and otherwise 0.
func skip(ws []words.Word, i int, some ...string) int {
	if Reads(ws, i, some...) {
		return 1
	}
	return 0
}

// ParseDigits reads "2", "2.5", "2,5", "1,000", "1/2", "½" and "两". A comma before three digits groups them; [SplitIn] reads it
// by the language. "00" is a name.
func ParseDigits(text string) (float64, bool) {
	if r, size := utf8.DecodeRuneInString(text); size == len(text) {
		if x, ok := words.Fraction(r); ok {
			return x, true
		}
	}
	if x, ok := parseNumeral(text); ok {
		return x, true
	}
	if over, under, ok := strings.Cut(text, "/"); ok {
		a, errA := strconv.ParseFloat(over, 64)
		b, errB := strconv.ParseFloat(under, 64)
		// "11/2" is one and a half whose space was lost, "80/20" a kind of beef, "4/5" in some languages four or five.
		usual := a < b && b <= 16 && (a < 4 || a+1 < b || b == 8)
		return a / b, errA == nil && errB == nil && a > 0 && usual
	}
	text = strings.ReplaceAll(text, "'", "")
	if before, after, ok := strings.Cut(text, ","); ok {
		if len(after) == 3 && before != "0" || strings.Contains(after, ",") {
			text = strings.ReplaceAll(text, ",", "")
		} else {
			text = before + "." + after
		}
	}
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && x < 1e6 && !strings.HasPrefix(text, "00")
}

// Readings returns every number that digits may be, whatever the language: "1,250" is 1250 and 1.25.
func Readings(text string) []float64 {
	var out []float64
	if x, ok := ParseDigits(text); ok {
		out = append(out, x)
	}
	if m := threeDigits.FindStringSubmatch(text); m != nil {
		for _, form := range []string{m[1] + m[3], m[1] + "." + m[3]} {
			x, _ := ParseDigits(form)
			out = append(out, x)
		}
	}
	return out
}

// at returns a word in lower case, or what it means in its language, or "" outside the text.
func at(ws []words.Word, i int) string {
	if i < 0 || i >= len(ws) {
		return ""
	}
	return cmp.Or(ws[i].Reading, ws[i].Lower)
}
