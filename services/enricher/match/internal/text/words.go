// Package text brings names and addresses of any country into one form: folded runes, words, segments.
package text

import (
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
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
// apostrophe is its own word ("l'orangerie" gives "l" and "orangerie").
//
// A script without spaces between words (Han, Kana, Thai and its neighbours) gives one word for each rune. The Arabic
// article is its own word, as in romanised names.
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
	if cut := strings.IndexByte(raw, '\''); cut > 0 && slices.Contains(elided, raw[:cut]) && utf8.RuneCountInString(raw[cut+1:]) > 2 {
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

// elided are the words before an apostrophe that are an article or preposition that lost its vowel.
var elided = []string{"l", "d", "j", "m", "n", "t", "c", "qu", "dell", "all", "nell", "dall", "sull", "un", "gl"}

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

// MaxBytes bounds how much of a field is looked at. The rest is ignored, so that a 10 kB name costs as much as a long one.
const MaxBytes = 512

// special maps runes without a compatibility decomposition to the letters that stand for them in comparisons.
var special = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th", 'ı': "i", 'ħ': "h", 'ŋ': "ng", 'ə': "e",
	'ς': "σ",
	'ך': "כ", 'ם': "מ", 'ן': "נ", 'ף': "פ", 'ץ': "צ", 'װ': "וו", 'ײ': "יי", 'ױ': "וי",
	'ى': "ي", 'ی': "ي", 'ة': "ه", 'ۀ': "ه", 'ک': "ك", 'ہ': "ه", 'ٱ': "ا", 'ۃ': "ه",
	'’': "'", '‘': "'", 'ʼ': "'", 'ʻ': "'", '`': "'", '´': "'", '׳': "'", '′': "'", 'ʹ': "'",
	'“': "\"", '”': "\"", '„': "\"", '«': "\"", '»': "\"", '״': "\"", '″': "\"",
	'‐': "-", '‑': "-", '‒': "-", '–': "-", '—': "-", '―': "-", '−': "-", '־': "-", 'ー': "ー",
	'•': "|", '·': "|", '／': "/", '،': ",", '、': ",", '؛': ";", '。': ".",
	'\\': " ",
}

// Fold returns s in the form in which it is compared: compatibility-decomposed, lower case, without the marks that
// readers leave out (Latin, Greek and Cyrillic accents, niqqud, harakat, tatweel, bidirectional controls), final letters as
// plain ones, every decimal digit as ASCII, one kind of quote and dash, single spaces. Marks of other scripts are vowels
// and stay. HTML entities are read. At most MaxBytes of s are read.
func Fold(s string) string {
	s = clip(s, MaxBytes)
	if strings.Contains(s, "&") && strings.Contains(s, ";") { // some sources escape twice
		s = html.UnescapeString(html.UnescapeString(s))
	}
	var b strings.Builder
	b.Grow(len(s))
	space := true // swallows leading spaces
	ascii := true
	for _, r := range norm.NFKD.String(s) {
		r = unicode.ToLower(r)
		switch {
		case r < utf8.RuneSelf && r != '`' && r != '\\' && r > ' ':
			b.WriteByte(byte(r))
			space = false
		case dropped(r):
		case unicode.IsSpace(r) || unicode.IsControl(r) || r == '\\' || r == utf8.RuneError:
			if !space {
				b.WriteByte(' ')
				space = true
			}
		default:
			ascii = writeFolded(&b, r) && ascii
			space = false
		}
	}
	out := strings.TrimRight(b.String(), " ")
	if !ascii {
		out = norm.NFC.String(out)
	}
	return out
}

// writeFolded writes r folded and reports whether the result is ASCII.
func writeFolded(b *strings.Builder, r rune) bool {
	if to, ok := special[r]; ok {
		b.WriteString(to)
		return to[0] < utf8.RuneSelf
	}
	if d, ok := digit(r); ok {
		b.WriteByte(d)
		return true
	}
	b.WriteRune(r)
	return false
}

// dropped reports whether a text with r and one without it are the same to a reader.
func dropped(r rune) bool {
	switch {
	case r < 0x300:
		return r == 0xAD // soft hyphen
	case r <= 0x36F, r >= 0x483 && r <= 0x489, r >= 0x591 && r <= 0x5C7 && r != 0x5BE && r != 0x5C0 && r != 0x5C3:
		return true
	case r == 0x640, r >= 0x610 && r <= 0x61A, r >= 0x64B && r <= 0x65F, r == 0x670, r >= 0x6D6 && r <= 0x6ED && unicode.Is(unicode.Mn, r):
		return true
	}
	return unicode.Is(unicode.Cf, r) || r >= 0xFE00 && r <= 0xFE0F
}

// digit returns the ASCII form of a decimal digit of any script. The ten digits of a script are consecutive runes and
// start with zero.
func digit(r rune) (byte, bool) {
	if !unicode.Is(unicode.Nd, r) {
		return 0, false
	}
	n := 0
	for ; unicode.Is(unicode.Nd, r-1); r-- {
		n++
	}
	return digits[n%10], true
}

const digits = "0123456789"

// clip returns the first size bytes of a text, without a part of a rune at their end.
func clip(s string, size int) string {
	if len(s) <= size {
		return s
	}
	for size > 0 && !utf8.RuneStart(s[size]) {
		size--
	}
	return s[:size]
}

// Script is a writing system as far as matching tells them apart.
type Script uint8

// The scripts whose words can be compared by sound, and Other for the rest.
const (
	// None is the script of digits and punctuation.
	None Script = iota
	// Latin is the Latin alphabet after folding.
	Latin
	// Cyrillic is the Cyrillic alphabet.
	Cyrillic
	// Greek is the Greek alphabet.
	Greek
	// Hebrew is the Hebrew abjad.
	Hebrew
	// Arabic is the Arabic abjad with its Persian and Urdu letters.
	Arabic
	// Georgian is the Mkhedruli alphabet.
	Georgian
	// Armenian is the Armenian alphabet.
	Armenian
	// Other is any other script: its words are compared with words of Other only.
	Other
)

// Abjad reports whether the script leaves most vowels unwritten.
func (s Script) Abjad() bool { return s == Hebrew || s == Arabic }

// Sounded reports whether words of the script can be compared by sound with another script.
func (s Script) Sounded() bool { return s >= Latin && s < Other }

// blocks lists the ranges of the letters of the scripts, ordered by their first rune.
var blocks = []struct {
	from, to rune
	script   Script
}{
	{0x80, 0x250, Latin},
	{0x370, 0x400, Greek},
	{0x400, 0x530, Cyrillic},
	{0x530, 0x590, Armenian},
	{0x590, 0x600, Hebrew},
	{0x600, 0x780, Arabic},
	{0x10A0, 0x1100, Georgian},
	{0x1C90, 0x1CC0, Georgian},
	{0x1E00, 0x1F00, Latin},
	{0x1F00, 0x2000, Greek},
	{0x2D00, 0x2D30, Georgian},
	{0xFB13, 0xFB18, Armenian},
	{0xFB50, 0xFF00, Arabic},
}

// ScriptOf returns the script of a folded rune.
func ScriptOf(r rune) Script {
	if r < 0x80 {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return Latin
		}
		return None
	}
	if !unicode.IsLetter(r) {
		return None
	}
	for _, b := range blocks {
		if r >= b.from && r < b.to {
			return b.script
		}
	}
	return Other
}
