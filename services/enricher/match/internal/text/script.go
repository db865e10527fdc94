package text

import "unicode"

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

// blocks are the letters of the scripts, by where they begin.
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
