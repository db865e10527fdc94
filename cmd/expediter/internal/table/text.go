package table

import (
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
	"golang.org/x/text/unicode/bidi"
)

// leftToRight is the left-to-right mark: it takes no room, and what stands between two of them cannot change the order
// of anything outside.
const leftToRight = "\u200e"

// isolate keeps the columns in order on terminals that write right-to-left scripts in their direction: two such names
// side by side, with nothing but spaces and digits in between, would change places.
func isolate(cell string) string {
	for _, r := range cell {
		p, _ := bidi.LookupRune(r)
		switch p.Class() {
		case bidi.R, bidi.AL, bidi.AN:
			return leftToRight + cell + leftToRight
		default:
		}
	}
	return cell
}

// cut shortens text to a number of terminal cells, without cutting a character in two.
func cut(text string, cells int) string {
	if uniseg.StringWidth(text) <= cells {
		return text
	}
	var short strings.Builder
	width := 0
	for graphemes := uniseg.NewGraphemes(text); graphemes.Next(); {
		if width += graphemes.Width(); width > cells-1 {
			break
		}
		short.WriteString(graphemes.Str())
	}
	return short.String() + "…"
}

// Printable replaces what could move the cursor, colour the terminal or turn the direction of the line: names come from
// files and from strangers.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', r == '\u2028', r == '\u2029':
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
}
