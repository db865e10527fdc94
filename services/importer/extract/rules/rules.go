// Package rules reads recipes out of transcripts and descriptions by rules and word lists, without a network or a model.
//
// # What it does
//
// The transcript is cut into sentences. Each sentence is scored by its features: verbs of the kitchen and their forms,
// foods, amounts, times, heat, vessels, and the words of praise and stories. The weights were fitted to sentences that
// people marked; the word lists are general knowledge. A sentence with a high score is a step, and a
// sentence that only continues the step before is joined to that step. Ingredients come from the list in the
// description, or else from the transcript: amounts of foods, and foods that are acted on.
//
// # What it does not do
//
// It does not understand. In languages other than English it knows units, numbers in digits and the headings of lists. So
// it reads the ingredients in the description, takes the chapters of the video for the steps, and adds a warning. Text that
// addresses a model is dropped before anything is read.
package rules

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Name is the name of the extractor in recipes.
const Name = "rules"

// Codes of the warnings that this extractor gives.
const (
	// WarnLanguage means that the rules do not cover speech in the language of the source.
	WarnLanguage = "language_unsupported"
	// WarnNoTimes means that the steps come from a description and have no timestamps.
	WarnNoTimes = "no_timestamps"
	// WarnSeveral means that the source has several recipes, of which the first was taken.
	WarnSeveral = "several_recipes"
	// WarnSpoken means that there was no list of ingredients, so they were collected from the transcript.
	WarnSpoken = "ingredients_from_speech"
	// WarnDoubtful means that little in the source is about cooking, so that it may be no recipe.
	WarnDoubtful = "cooking_doubtful"
	// WarnCut means that only a part of the source was read, because of its length.
	WarnCut = extract.WarnSourceCut
)

// Extractor reads recipes by rules. The zero value is ready, and safe for concurrent use.
type Extractor struct{}

var _ extract.Extractor = Extractor{}

// New returns an extractor whose recipes are clean, verified and valid.
func New() extract.Extractor { return extract.Checked(Extractor{}) }

// Extract implements [extract.Extractor]. It takes time linear in the length of the source, about a millisecond for a minute
// of speech, and ends soon after its context. The error wraps [extract.ErrNoRecipe] when the source as a whole is not about
// cooking, has no ingredients, has no steps and no list of ingredients under a heading, or is in a language that the rules do
// not cover. Its message gives the reason.
func (Extractor) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	r := &reader{}
	if err := r.prepare(ctx, in); err != nil {
		return recipe.Recipe{}, err
	}
	r.recipe.Title = title(r.in.Title)
	r.recipe.Language = r.language
	r.recipe.Source = in.Source
	r.recipe.Source.Extractor = Name
	r.readDescription()
	for _, read := range []func(context.Context) error{r.score, r.readSteps, r.readIngredients, r.judge} {
		if err := read(ctx); err != nil {
			return recipe.Recipe{}, err
		}
	}
	if len(r.recipe.Ingredients) == 0 || len(r.recipe.Steps) == 0 && !r.listOnly() {
		return recipe.Recipe{}, r.nothing()
	}
	if r.in.Untimed && len(r.listed) > 0 && (len(r.instructions) > 0 || len(r.recipe.Steps) == 0) {
		r.nameDish()
	}
	return r.recipe, nil
}

// reader is one extraction.
type reader struct {
	in        extract.Input
	language  string
	foreign   bool     // the language is not English, whether or not it has a name
	lines     []string // of the description, without lines that address a model
	sentences []talk.Sentence
	scores    []float64
	recipe    recipe.Recipe

	listed       []recipe.Ingredient // the list in the description
	instructions []string            // the method in the description
	text         text                // the description, read
}

// listOnly reports whether a text that is the recipe has a list of ingredients under a heading, and no method.
func (r *reader) listOnly() bool {
	return r.in.Untimed && len(r.listed) > 0 && len(r.instructions) == 0
}

// nothing returns the error of a source without ingredients or steps.
func (r *reader) nothing() error {
	err := fmt.Errorf("rules: %d ingredients and %d steps in %d sentences and %d lines of description: %w",
		len(r.recipe.Ingredients), len(r.recipe.Steps), len(r.sentences), len(r.lines), extract.ErrNoRecipe)
	switch {
	case r.in.ImageType == "image/heic" && len(r.sentences)+len(r.lines) == 0:
		return extract.Failed(false, err, "no text was read from the photo, which is HEIC: hand it in as JPEG, which an iPhone takes with "+
			"Settings, Camera, Formats, Most Compatible")
	case len(r.in.Image) > 0 && len(r.sentences)+len(r.lines) == 0:
		return extract.Failed(false, err, "no text was read from the photo (%s): it has to be an upright JPEG, PNG, GIF or WebP, or a model "+
			"has to see it", r.in.ImageType)
	case r.english():
		return err
	}
	return extract.Failed(false, err, "the source is in %s, in which the rules find no complete recipe: they read English, and of other "+
		"languages a list of ingredients and a method under headings in %s; steps may also be chapters, or sentences with a time or "+
		"a temperature", languageName(r.language), headingLanguages)
}

func (r *reader) warn(code, text string) {
	r.recipe.Warnings = append(r.recipe.Warnings, recipe.Warning{Code: code, Text: text})
}

// prepare bounds the source, cuts it into sentences and lines, and drops sentences that address a model.
func (r *reader) prepare(ctx context.Context, in extract.Input) error {
	in, cut := extract.Bounded(in)
	r.in = in
	instructed := r.readLines()
	sentences, err := talk.Cut(ctx, in.Segments)
	for _, s := range sentences {
		if err = talk.Ended(ctx); err != nil {
			break
		}
		if words.Speaks(s.Text) {
			instructed = true
			continue
		}
		r.sentences = append(r.sentences, s)
	}
	if err != nil {
		return err
	}
	if instructed {
		r.warn(extract.WarnInstructions, "The source gives instructions to a model; those sentences were left out.")
	}
	if cut {
		r.warn(WarnCut, "The source is longer than is read; its end was left out.")
	}
	r.language, r.foreign = languageOf(r.in, r.sentences)
	return nil
}

// readLines cuts the description into lines. It drops those that address a model, and reports whether there were any.
func (r *reader) readLines() (instructed bool) {
	text := r.in.Description
	if strings.Contains(text, "<") {
		text = breakTags.ReplaceAllString(headTags.ReplaceAllString(tags.ReplaceAllString(text, "**"), "\n## "), "\n")
	}
	for line := range strings.Lines(extract.PlainText(text)) {
		if words.Speaks(line) {
			instructed = true
			continue
		}
		r.lines = append(r.lines, strings.TrimSpace(line))
	}
	return instructed
}

// Step makes a step of an unchanged instruction in the language tag, "" for one that is not known, with the times and temperatures that
// it names. Its index is 0. Step does not cut texts; extract.Clean does.
func Step(text, tag string) recipe.Step {
	step := recipe.Step{Text: strings.Join(strings.Fields(text), " ")}
	if len(step.Text) <= recipe.MaxStep { // otherwise the marks of each piece are read
		measure.ReadStep(tag, &step)
	}
	return step
}

// score scores the sentences of an English source.
func (r *reader) score(ctx context.Context) error {
	if !r.english() {
		return nil
	}
	features, err := talk.Observe(ctx, r.sentences)
	r.scores = talk.Score(features)
	return err
}

// judge refuses a source in which nobody seems to cook, and adds a warning when that is doubtful. It judges only English: in
// other languages a written list is required anyway.
func (r *reader) judge(ctx context.Context) error {
	if slices.ContainsFunc(r.recipe.Ingredients, isNoFood) {
		r.warn(WarnDoubtful, "Not all of the ingredients are food; this may be no dish.")
	}
	if !r.english() || len(r.sentences)+len(r.listed)+len(r.instructions) == 0 {
		return nil
	}
	d, err := r.document(ctx)
	if err != nil {
		return err
	}
	cooking, err := d.Cooking(ctx)
	thin := len(r.recipe.Steps) > 6*len(r.recipe.Ingredients) // such as one food, and thirty times "add it to the list"
	switch {
	case err != nil:
		return err
	case cooking < talk.Refused, cooking < talk.Doubtful && thin:
		return extract.Failed(false, fmt.Errorf("rules: cooking is %.2f likely: %w", cooking, extract.ErrNoRecipe),
			"no recipe was found in the source: as a whole it does not seem to be about cooking")
	case cooking < talk.Doubtful:
		r.warn(WarnDoubtful, "Little in the source speaks of cooking; this may be no recipe.")
	}
	return nil
}

// isNoFood reports whether an ingredient is one of soaps, candles or birds: a written recipe of these has the form of a dish's.
func isNoFood(in recipe.Ingredient) bool {
	ws := words.Split(in.Item)
	for i := range ws {
		if said("inedible", ws, i) > 0 {
			return true
		}
	}
	return false
}

// document returns the source in the form that is judged: its title, the transcript, and then the written list and
// method.
func (r *reader) document(ctx context.Context) (*talk.Document, error) {
	d := &talk.Document{}
	written := make([]caption.Segment, 0, len(r.listed)+len(r.instructions))
	for i := range r.listed {
		if l := &r.listed[i]; (l.Qty != "" || l.Unit != "") && isFood(l.Item) {
			d.Listed++
		}
		written = append(written, caption.Segment{Text: r.listed[i].Raw + "."})
	}
	for _, text := range r.instructions {
		written = append(written, caption.Segment{Text: text + "."})
	}
	sentences, err := talk.Cut(ctx, written)
	if err != nil {
		return nil, err
	}
	title, err := talk.Cut(ctx, []caption.Segment{{Text: r.in.Title}})
	d.Sentences = slices.Concat(title, r.sentences, sentences)
	return d, err
}

// ofKitchens has the units that are used in kitchens and hardly anywhere else.
var ofKitchens = []string{"teaspoon", "tablespoon", "cup", "pinch", "clove", "sprig"}

func inKitchenUnits(list []recipe.Ingredient) bool {
	return slices.ContainsFunc(list, func(i recipe.Ingredient) bool { return slices.Contains(ofKitchens, i.Unit) })
}

var (
	hashtags = lazyregexp.New(`#[\p{L}\p{N}_]+`)
	brackets = lazyregexp.New(`\s*[\[({【][^\])}】]*[\])}】]`)
	howTo    = lazyregexp.New(`(?i)^\s*(?:learn\s+)?(?:how\s+(?:to|i)|let's|the\s+way\s+i|wie\s+man)\s+` +
		`(?:make|cook|bake|prepare|grill|fry|do|roast)\s+(?:(?:the|my|an?|some|your)\s+)?`)
	boast = lazyregexp.New(`(?i)^(?:(?:the|my|our)\s+)?(?:(?:absolute(?:ly)?|very|best|perfect|ultimate|easiest|easy|amazing|` +
		`most delicious|most|delicious|incredible|quick|simple|super|ever|famous)[\s,&-]+(?:and\s+)?)+(?:ever\s+)?`)
	trailer = lazyregexp.New(`(?i)[\s,:-]+(?:(?:easy|simple|best|quick|full|video|homemade|delicious|authentic)\s+)*` +
		`(?:recipes?|rezept|receta|recette|ricetta|receita|рецепт|tutorial|you'll ever (?:make|eat|have)|in (?:just )?\d+ minutes?|` +
		`ever|at home|step by step)[!.\s]*$`)
)

// title returns the name of the dish in the title of a video: without the name of the channel, tags, signs and praise.
func title(text string) string {
	plain := strings.Join(strings.Fields(extract.PlainText(redact.Clip(text, 4*recipe.MaxTitle))), " ")
	if words.Speaks(plain) {
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
	for _, p := range []*lazyregexp.Regexp{howTo, boast, trailer, trailer} {
		if shorter := p.ReplaceAllString(out, ""); strings.ContainsFunc(shorter, unicode.IsLetter) {
			out = shorter
		}
	}
	out = strings.Trim(strings.Join(strings.Fields(out), " "), " -:,.!?|")
	for _, candidate := range []string{out, plain} {
		if name := named(candidate); name != "" {
			return name
		}
	}
	return extract.Untitled
}

// named returns a title in its case, or "" when cleaning leaves nothing of it, as of an address.
func named(text string) string {
	r := recipe.Recipe{Title: calm(text)}
	extract.Clean(&r)
	if r.Title == "" {
		return ""
	}
	return calm(text) // not cut here: Clean cuts, and reports it
}

// calm writes a title of capitals only in lower case, with a capital at the beginning.
func calm(text string) string {
	if len(text) > 3 && strings.ToUpper(text) == text && strings.ToLower(text) != text {
		text = strings.ToLower(text)
	}
	return capitalized(text)
}

//go:embed words.txt
var wordsText string

// lists has the words of each kind; a kind of two letters is a language.
var lists = sync.OnceValue(func() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for kind, word := range words.Lists(wordsText) {
		if out[kind] == nil {
			out[kind] = map[string]bool{}
		}
		out[kind][word] = true
	}
	return out
})

func listed(kind, word string) bool { return lists()[kind][word] }

// sampleWords is the number of words from which the language of a text is determined.
const sampleWords = 2000

// headingLanguages has the names of the languages whose headings are known.
const headingLanguages = "English, German, Spanish, French, Italian, Portuguese, Dutch, Russian, " +
	"Polish, Turkish, Hebrew, Arabic, Chinese, Japanese, Korean, Thai or Hindi"

// languageName returns the English name of a language.
func languageName(tag string) string {
	if name := display.English.Tags().Name(language.Make(tag)); tag != "" && name != "" {
		return name
	}
	return "a language that is not known"
}

// languageOf returns the tag that the input names, or else the tag of the language that the words suggest, "" if they
// suggest none. foreign reports whether the language is not English, which may be clear even without a tag.
func languageOf(in extract.Input, sentences []talk.Sentence) (tag string, foreign bool) {
	if tag, err := language.Parse(strings.TrimSuffix(in.Language, "-orig")); err == nil && tag != language.Und {
		base, _ := tag.Base()
		return tag.String(), base.String() != "en"
	}
	var ws []words.Word
	for i := range sentences {
		if len(ws) > sampleWords {
			break
		}
		ws = append(ws, sentences[i].Words...)
	}
	if len(ws) < 20 {
		ws = append(ws, words.Split(words.Plain(in.Title+" "+redact.Clip(in.Description, 8000)))...)
	}
	tag, english, total := guess(ws)
	if tag == "" && total >= 20 && english*3 >= total { // a list and orders have few of the common words
		tag = "en"
	}
	// A text of 30 words is not English when fewer than one in 30 is a common English word or a word of the kitchen.
	return tag, tag != "en" && (tag != "" || total >= 30 && english*30 < total)
}

// guess returns the language that the words suggest, and the numbers of English words and of all words.
func guess(ws []words.Word) (tag string, english, total int) {
	votes := map[string]int{}
	for _, w := range ws {
		if w.Kind != words.Letters {
			continue
		}
		total++
		if stem := []string{words.Stem(w.Lower)}; listed("en", w.Lower) || words.Verb(stem[0]) > words.None || isFoodWord(stem) {
			english++
		}
		if tag := words.ScriptOf(w.Lower); tag != "" {
			votes[tag] += 3
		}
		for tag, list := range lists() {
			if len(tag) == 2 && list[w.Lower] {
				votes[tag]++
			}
		}
	}
	best := ""
	for tag, n := range votes {
		if n > votes[best] || n == votes[best] && (best == "" || tag < best) {
			best = tag
		}
	}
	if votes[best]*10 < total {
		best = ""
	}
	return best, english, total
}

func isFoodWord(stems []string) bool {
	used, _ := words.Food(stems, 0)
	return used > 0
}

// imperative returns the text of a sentence as an order where the words allow it: without openers, and without "I'm going
// to" before a verb. The other words are unchanged.
func imperative(s *talk.Sentence) string {
	ws := s.Words
	from := 0
	for from < len(ws) && (ws[from].Kind == words.Mark || listed("opener", ws[from].Lower)) {
		from++
	}
	if from == len(ws) {
		return ""
	}
	if to := afterPlan(s, from); isBase(s, to) {
		from = to
	}
	return tidy(s.Text[ws[from].Start:])
}

// afterPlan returns the position after "I'm going to" and the like, or from when there is no such phrase.
func afterPlan(s *talk.Sentence, from int) int {
	w := s.Words[from].Lower
	if !listed("subject", w) && w != "going" && w != "gonna" {
		return from
	}
	to := from + 1
	for to < len(s.Words) && to-from < 9 && listed("helper", s.Words[to].Lower) {
		to++
	}
	if to == from+1 && listed("subject", w) {
		return from // "we add" stays as it is
	}
	return to
}

// isBase reports whether the word at i is a verb of the kitchen in the form of an order.
func isBase(s *talk.Sentence, i int) bool {
	return i < len(s.Words) && words.Verb(s.Stems[i]) != words.None && talk.IsBase(s.Words[i].Lower)
}

var tidier = strings.NewReplacer(" ,", ",", " .", ".", " ?", "?", " !", "!", " ;", ";", " n't", "n't", " 's", "'s",
	" 're", "'re", " 've", "'ve", " 'll", "'ll", " 'm", "'m", " 'd ", "'d ", " %", "%", ",,", ",")

// tidy removes the spaces before marks in text that was joined from words.
func tidy(text string) string {
	return strings.TrimRight(tidier.Replace(strings.Join(strings.Fields(text), " ")), " ,;:-")
}
