package caption

import (
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// longestName is the length of the longest name of a character reference, without the semicolon. Not one of the names that
// do without it is longer.
const longestName = len("CounterClockwiseContourIntegral")

// unescape replaces the character references of HTML, as its rules have it outside of attributes: the semicolon may be
// missing after some names.
func unescape(text string) string {
	if strings.IndexByte(text, '&') < 0 {
		return text
	}
	var b strings.Builder
	for {
		amp := strings.IndexByte(text, '&')
		if amp < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:amp])
		text = text[amp:]
		value, size := reference(text)
		b.WriteString(value)
		text = text[size:]
	}
}

// reference reads what stands at an ampersand: the text it means and its length. An ampersand that begins no reference
// means itself.
func reference(text string) (value string, size int) {
	if len(text) > 1 && text[1] == '#' {
		return numericReference(text)
	}
	size = 1
	for size < len(text) && size <= longestName && isAlphanumeric(text[size]) {
		size++
	}
	if size < len(text) && text[size] == ';' {
		size++
	}
	if size == 1 {
		return text[:1], 1
	}
	return html.UnescapeString(text[:size]), size
}

// numericReference reads &#8230; or &#x2026;. The standard library's function does the same but stumbles over the end of
// the text and numbers of many digits.
func numericReference(text string) (value string, size int) {
	i, base := 2, rune(10)
	if i < len(text) && (text[i] == 'x' || text[i] == 'X') {
		i, base = i+1, 16
	}
	from, code := i, rune(0)
	for ; i < len(text); i++ {
		digit := hexDigit(text[i])
		if digit >= base {
			break
		}
		code = min(code*base+digit, utf8.MaxRune+1)
	}
	if i == from {
		return text[:1], 1
	}
	if i < len(text) && text[i] == ';' {
		i++
	}
	if code >= 0x80 && code <= 0x9F {
		return html.UnescapeString("&#" + strconv.Itoa(int(code)) + ";"), i // what Windows-1252 has there
	}
	if code == 0 || !utf8.ValidRune(code) {
		return replacement, i
	}
	return string(code), i
}

func hexDigit(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return 16
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
