package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Word is one word of a folded text.
type Word struct {
	// Text has letters and digits only.
	Text string
	// Raw is Text with its apostrophes, which change how Hebrew letters sound.
	Raw string
	// Script is the script of the first letter, None when there is no letter.
	Script Script
}

// maxWords bounds the words taken from one text, maxWordBytes the length of each.
const (
	maxWords     = 24
	maxWordBytes = 64
)

// Words splits a folded text at everything that is neither letter nor digit. An apostrophe inside a word belongs to the
// word ("o'neill"), and so does a double quote between Hebrew letters (an acronym). A French or Italian article before an
// apostrophe is a word of its own ("l'orangerie" gives "l" and "orangerie").
//
// A script without spaces between words (Han, Kana, Thai and its neighbours) gives one word for each rune. The Arabic
// article is a word of its own, as in romanised names.
func Words(folded string) []Word {
	folded = Spread(assimilate(tieApostrophes(folded)))
	words := make([]Word, 0, 8)
	start := -1
	for i, r := range folded {
		if inWord(folded, i, r) {
			if start < 0 {
				start = i
			}
			continue
		}
		if start >= 0 {
			words = appendWord(words, folded[start:i])
			start = -1
		}
	}
	if start >= 0 {
		words = appendWord(words, folded[start:])
	}
	words = joinInitials(words)
	if len(words) > maxWords {
		words = words[:maxWords]
	}
	return words
}

// joinInitials makes one word of neighbouring single letters: "p.f. chang" and "pf chang" are one name.
func joinInitials(words []Word) []Word {
	out := words[:0]
	open := false
	for _, w := range words {
		single := len(w.Text) == 1 && w.Script == Latin
		if single && open {
			last := &out[len(out)-1]
			last.Text += w.Text
			last.Raw = last.Text
			continue
		}
		open = single
		out = append(out, w)
	}
	return out
}

func inWord(s string, i int, r rune) bool {
	switch {
	case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r):
		return true
	case r == '\'':
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		return unicode.IsLetter(before)
	case r == '"':
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		after, _ := utf8.DecodeRuneInString(s[i+1:])
		return ScriptOf(before) == Hebrew && ScriptOf(after) == Hebrew
	}
	return false
}

func appendWord(words []Word, raw string) []Word {
	raw = strings.Trim(raw, "'")
	if raw == "" || len(words) > maxWords {
		return words
	}
	if cut := strings.IndexByte(raw, '\''); cut > 0 && elided(raw[:cut]) && utf8.RuneCountInString(raw[cut+1:]) > 2 {
		words = append(words, newWord(raw[:cut]))
		raw = raw[cut+1:]
	}
	if rest, ok := strings.CutPrefix(raw, "ال"); ok && utf8.RuneCountInString(rest) > 2 {
		words = append(words, newWord("ال"))
		raw = rest
	}
	return append(words, newWord(raw))
}

// IsNumber reports whether a folded word has digits only.
func IsNumber(word string) bool { return word != "" && strings.Trim(word, digits) == "" }

// Spread puts spaces around each rune of a script that writes none between words.
func Spread(s string) string {
	if strings.IndexFunc(s, unspaced) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unspaced(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

var unspacedScripts = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

func unspaced(r rune) bool {
	return r > 0x0E00 && unicode.IsLetter(r) && unicode.In(r, unspacedScripts...)
}

func newWord(raw string) Word {
	raw = clip(raw, maxWordBytes)
	w := Word{Text: raw, Raw: raw}
	if strings.ContainsAny(raw, "'\"") {
		w.Text = strings.NewReplacer("'", "", "\"", "").Replace(raw)
	}
	for _, r := range w.Text {
		if s := ScriptOf(r); s != None {
			w.Script = s
			break
		}
	}
	return w
}

// assimilate writes the romanised Arabic article as "al" where it is spelt by sound, with the consonant after it:
// "salah ad-din", "as-salam", "ash-sharif".
func assimilate(s string) string {
	for from := 0; ; {
		dash := strings.IndexByte(s[from:], '-')
		if dash < 0 {
			return s
		}
		dash += from
		from = dash + 1
		start := strings.LastIndexAny(s[:dash], " -") + 1
		article := s[start:dash]
		if len(article) < 2 || len(article) > 3 || article[0] != 'a' && article[0] != 'e' {
			continue
		}
		if sun := article[1:]; strings.Contains(sunLetters, " "+sun+" ") && strings.HasPrefix(s[from:], sun) {
			s = s[:start] + "al" + s[dash:]
			from = start + len("al-")
		}
	}
}

// sunLetters has the romanised consonants to which the Arabic article adapts its sound.
const sunLetters = " t th d dh r z s sh n "

// elided reports whether a word before an apostrophe is an article or preposition that lost its vowel.
func elided(s string) bool {
	switch s {
	case "l", "d", "j", "m", "n", "t", "c", "qu", "dell", "all", "nell", "dall", "sull", "un", "gl":
		return true
	}
	return false
}

// tieApostrophes removes the spaces around an apostrophe, which tokenised data has: "l ' orangerie", "morton 's".
func tieApostrophes(s string) string {
	if !strings.Contains(s, "'") || !strings.Contains(s, " ") {
		return s
	}
	s = strings.ReplaceAll(s, " 's ", "'s ")
	if strings.HasSuffix(s, " 's") {
		s = s[:len(s)-3] + "'s"
	}
	for _, article := range []string{"l", "d"} {
		if strings.HasPrefix(s, article+" ' ") {
			s = article + "'" + s[len(article)+3:]
		}
		s = strings.ReplaceAll(s, " "+article+" ' ", " "+article+"'")
	}
	return s
}
