package rules

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/instruct"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

var (
	hashtags = regexp.MustCompile(`#[\p{L}\p{N}_]+`)
	brackets = regexp.MustCompile(`\s*[\[({【][^\])}】]*[\])}】]`)
	howTo    = regexp.MustCompile(`(?i)^\s*(?:learn\s+)?(?:how\s+(?:to|i)|let's|the\s+way\s+i|wie\s+man)\s+` +
		`(?:make|cook|bake|prepare|grill|fry|do|roast)\s+(?:(?:the|my|an?|some|your)\s+)?`)
	boast = regexp.MustCompile(`(?i)^(?:(?:the|my|our)\s+)?(?:(?:absolute(?:ly)?|very|best|perfect|ultimate|easiest|easy|amazing|` +
		`most delicious|most|delicious|incredible|quick|simple|super|ever|famous)[\s,&-]+(?:and\s+)?)+(?:ever\s+)?`)
	trailer = regexp.MustCompile(`(?i)[\s,:-]+(?:(?:easy|simple|best|quick|full|video|homemade|delicious|authentic)\s+)*` +
		`(?:recipes?|rezept|receta|recette|ricetta|receita|рецепт|tutorial|you'll ever (?:make|eat|have)|in (?:just )?\d+ minutes?|` +
		`ever|at home|step by step)[!.\s]*$`)
)

// title returns the name of the dish in the title of a video: without the name of the channel, tags, signs and praise.
func title(text string) string {
	plain := strings.Join(strings.Fields(extract.PlainText(words.Cut(text, 4*recipe.MaxTitle))), " ")
	if instruct.Speaks(plain) {
		return extract.Untitled
	}
	out := brackets.ReplaceAllString(hashtags.ReplaceAllString(plain, ""), "")
	out = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.So, r) || unicode.Is(unicode.Sk, r) || r == '\u200d' {
			return -1
		}
		return r
	}, out)
	for _, separator := range []string{"|", " - ", "•", " // ", " ~ "} {
		if before, _, ok := strings.Cut(out, separator); ok && len(strings.Fields(before)) > 0 {
			out = before
		}
	}
	for _, p := range []*regexp.Regexp{howTo, boast, trailer, trailer} {
		if shorter := p.ReplaceAllString(out, ""); strings.ContainsFunc(shorter, unicode.IsLetter) {
			out = shorter
		}
	}
	out = strings.Trim(strings.Join(strings.Fields(out), " "), " -:,.!?|")
	for _, candidate := range []string{out, plain} {
		r := recipe.Recipe{Title: calm(candidate)}
		extract.Clean(&r)
		if r.Title != "" {
			return calm(candidate) // not cut yet: what is cut is reported where the recipe is cleaned
		}
	}
	return extract.Untitled
}

// calm takes the shouting out of a title that is all capitals, and begins it with one.
func calm(text string) string {
	if len(text) > 3 && strings.ToUpper(text) == text && strings.ToLower(text) != text {
		text = strings.ToLower(text)
	}
	for i, r := range text {
		if i == 0 {
			return string(unicode.ToUpper(r)) + text[len(string(r)):]
		}
	}
	return text
}
