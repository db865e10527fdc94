// Package text brings names and addresses of any country into one form: folded runes, words, segments.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

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
// and stay. At most MaxBytes of s are read.
func Fold(s string) string {
	s = clip(s, MaxBytes)
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
