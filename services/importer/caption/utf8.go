package caption

import (
	"bytes"
	"unicode/utf8"
)

const (
	byteOrderMark = "\ufeff"
	replacement   = "\ufffd"
)

// repair returns text with U+FFFD in place of NUL and of what is not UTF-8, one for each part that the Encoding Standard
// counts as one error (https://encoding.spec.whatwg.org/#utf-8-decoder). A text that needs no repair is returned as it is;
// otherwise the result is in room, which is returned too, grown where it had to.
func repair(room, text []byte) (grown, repaired []byte) {
	if bytes.IndexByte(text, 0) < 0 && utf8.Valid(text) {
		return room, text
	}
	room = room[:0]
	for len(text) > 0 {
		switch r, size := utf8.DecodeRune(text); {
		case r == 0:
			room = append(room, replacement...)
			text = text[1:]
		case r == utf8.RuneError && size == 1:
			room = append(room, replacement...)
			text = text[badLen(text):]
		default:
			room = append(room, text[:size]...)
			text = text[size:]
		}
	}
	return room, room
}

// badLen returns how many bytes at the start of text, which is not UTF-8 there, are one error: the longest part that
// could have begun a character.
func badLen(text []byte) int {
	low, high, more := byte(0x80), byte(0xBF), 0
	switch c := text[0]; {
	case c >= 0xC2 && c <= 0xDF:
		more = 1
	case c >= 0xE0 && c <= 0xEF:
		more = 2
	case c >= 0xF0 && c <= 0xF4:
		more = 3
	}
	switch text[0] {
	case 0xE0:
		low = 0xA0
	case 0xED:
		high = 0x9F
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F
	}
	n := 1
	for ; n <= more && n < len(text) && text[n] >= low && text[n] <= high; n++ {
		low, high = 0x80, 0xBF
	}
	return n
}

// wholeRunes returns text without the character that was cut in two at its end.
func wholeRunes(text []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if c := text[len(text)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(text[len(text)-i:]) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}
