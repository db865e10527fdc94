package wolt

import (
	"strings"
	"unicode"

	"golang.org/x/text/runes"
	"golang.org/x/text/transform"
	"golang.org/x/text/unicode/norm"
)

// foldCity brings the name or slug of a city into the form in which it is looked
// up: lower case, without accents, single spaces between words.
func foldCity(name string) string {
	folded, _, err := transform.String(transform.Chain(norm.NFKD, runes.Remove(runes.In(unicode.Mn))), name)
	if err != nil {
		folded = name
	}
	return strings.Join(strings.FieldsFunc(strings.ToLower(folded), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), " ")
}
