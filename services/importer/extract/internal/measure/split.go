package measure

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

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
	if afterNumber(out, w) {
		out, w = cutOff(out, w, gluedUnit(w.Text), words.Letters)
		for _, of := range []string{"的", "の"} {
			if strings.HasPrefix(w.Text, of) {
				out, w = cutOff(out, w, len(of), words.Letters)
			}
		}
	}
	next := 0 // after the last number, so that a long number is read once
	for at, r := range w.Text {
		if at < next || !isNumeral(r) {
			continue
		}
		digits := len(w.Text[at:]) - len(strings.TrimLeftFunc(w.Text[at:], isNumeral))
		next = at + digits
		rest := w.Text[next:]
		if size := gluedUnit(rest); size > 0 && rest[:size] != "合" { // 百合 is a lily
			out, w = cutOff(out, w, at, words.Letters)
			out, w = cutOff(out, w, digits, words.Digits)
			out, w = cutOff(out, w, size, words.Letters)
			break
		}
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
		if (len(units[unit]) > 0 || timeUnits[unit] > 0 || unit == "度") && unspaced(unit) && endsLetter(text[size:]) {
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
var unitsFirst = words.Set("大さじ 小さじ カップ")

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
