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
	// Other is any other script: its words are compared with words of Other only.
	Other
)

// Abjad reports whether the script leaves most vowels unwritten.
func (s Script) Abjad() bool { return s == Hebrew || s == Arabic }

// Sounded reports whether words of the script can be compared by sound with another script.
func (s Script) Sounded() bool { return s >= Latin && s <= Arabic }

// ScriptOf returns the script of a folded rune.
func ScriptOf(r rune) Script {
	switch {
	case r < 0x80:
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return Latin
		}
		return None
	case !unicode.IsLetter(r):
		return None
	case r < 0x250, r >= 0x1E00 && r < 0x1F00:
		return Latin
	case r >= 0x370 && r < 0x400, r >= 0x1F00 && r < 0x2000:
		return Greek
	case r >= 0x400 && r < 0x530:
		return Cyrillic
	case r >= 0x590 && r < 0x600:
		return Hebrew
	case r >= 0x600 && r < 0x780, r >= 0xFB50 && r < 0xFF00:
		return Arabic
	}
	return Other
}
