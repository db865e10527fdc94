// Package locale finds the texts for a reader's locale.
package locale

import (
	"iter"
	"slices"
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

// Choice chooses among the locales of some texts.
type Choice struct {
	matcher language.Matcher
	tags    []string // in the order of the matcher's
}

// Among returns the choice among normalized tags. inDefault is the language of the texts in Default.
func Among(inDefault string, tags ...string) Choice {
	var c Choice
	var known []language.Tag
	add := func(tag string, is language.Tag) { c.tags, known = append(c.tags, tag), append(known, is) }
	for _, tag := range slices.Sorted(slices.Values(tags)) {
		is, _ := canonical.Parse(tag)
		switch {
		case is == language.Und && tag != Default:
			add(tag, noLanguage) // found by name only
		case tag != Default:
			add(tag, is)
		}
	}
	add(Default, language.Make(inDefault)) // last: of equals the first counts, and texts in en are more than texts in Default
	c.matcher = language.NewMatcher(known)
	return c
}

var noLanguage = language.MustParse("zxx")

// Best returns the tag of the texts that a reader understands best by CLDR: nb for nn, zh-hans for zh-CN, de-de for de-AT. It is
// Default if the reader understands none.
func (c Choice) Best(reader string) string {
	if tag := Normalize(reader); slices.Contains(c.tags, tag) {
		return tag
	}
	known, _ := canonical.Parse(reader)
	if known == language.Und { // matches whatever is first
		return Default
	}
	_, i, confidence := c.matcher.Match(known)
	if confidence == language.No {
		return Default
	}
	return c.tags[i]
}

// Fitting yields the normalized tags of what is common in a locale, the best first: the tag, its parents in CLDR, such as zh-hant for
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
