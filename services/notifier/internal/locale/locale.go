// Package locale finds the texts for a reader's locale.
package locale

import (
	"iter"
	"strings"

	"golang.org/x/text/language"
)

// canonical replaces deprecated and legacy codes: iw by he, no by nb, tl by fil.
const canonical = language.All | language.CLDR

// Default is the locale of texts for readers without texts in their own.
const Default = "default"

// Normalize returns a language tag as CLDR has it, in lower case: he for iw. A text that is no tag is only put in lower case.
func Normalize(tag string) string {
	if known, err := canonical.Parse(tag); err == nil {
		tag = known.String()
	}
	return strings.ToLower(strings.ReplaceAll(tag, "_", "-"))
}

// Fitting yields the normalized tags of texts that fit a locale, the best first: the tag, its parents in CLDR, such as zh-hant for
// zh-TW, the tag without its last parts, and Default. A tag may come twice.
func Fitting(locale string) iter.Seq[string] {
	return func(yield func(string) bool) {
		known, _ := canonical.Parse(locale) // und for another text
		for ; known != language.Und; known = known.Parent() {
			if !yield(strings.ToLower(known.String())) {
				return
			}
		}
		for tag := Normalize(locale); tag != ""; tag = tag[:max(0, strings.LastIndexByte(tag, '-'))] {
			if !yield(tag) {
				return
			}
		}
		yield(Default)
	}
}
