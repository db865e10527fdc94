package address

import (
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

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

// fieldsOf cuts a segment at spaces and tells numbers from words.
func fieldsOf(s string) []field {
	var out []field
	for f := range strings.FieldsSeq(unglue(text.Spread(s))) {
		if len(out) == maxFields {
			break
		}
		hash := strings.HasPrefix(f, "#")
		if n, ok := parseNumber(strings.Trim(f, "#.:'\"")); ok {
			out = append(out, field{number: n, isNum: true, hash: hash})
			continue
		}
		if words := wordsOf(f); len(words) > 0 && !hash { // "#b" is a flat
			out = append(out, field{words: words})
		}
	}
	return out
}

// unglue separates the words that lost their space in a folded segment: "hwyste 375", "ste375", "northpoint".
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

// seam returns where two words meet in one, 0 for nowhere: a word for street and one for a suite, that and a number, or a quarter of
// the compass and a word of the tables. A word that is in the tables as a whole is one word.
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

// wordsOf returns the words of a field. A word for street that is abbreviated around a dash is one: "пр-т", "б-р".
func wordsOf(f string) []text.Word {
	words := text.Words(f)
	if len(words) == 2 && strings.Contains(f, "-") {
		joined := words[0].Text + words[1].Text
		if known, ok := lexicon.Address(joined); ok && known.Part == lexicon.Type {
			return []text.Word{{Text: joined, Raw: joined, Script: words[0].Script}}
		}
	}
	return words
}

// unit reads "suite 200", "2nd floor", "unit b" at the start of fields and returns how many that took, zero when there
// is none.
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
