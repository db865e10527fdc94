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
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

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
// cooking, has no ingredients or no steps, or is in a language that the rules do not cover. Its message gives the reason.
func (Extractor) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	r := &reader{}
	if err := r.prepare(ctx, in); err != nil {
		return recipe.Recipe{}, err
	}
	r.recipe.Title = title(r.in.Title)
	r.recipe.Language = r.language
	r.recipe.Source = in.Source
	r.recipe.Source.Extractor = Name
	for _, read := range []func(context.Context) error{r.readDescription, r.judge, r.readSteps, r.readIngredients} {
		if err := read(ctx); err != nil {
			return recipe.Recipe{}, err
		}
	}
	if len(r.recipe.Steps) == 0 || len(r.recipe.Ingredients) == 0 {
		return recipe.Recipe{}, r.nothing()
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
	instructed := false
	for line := range strings.Lines(extract.PlainText(in.Description)) {
		if words.Speaks(line) {
			instructed = true
			continue
		}
		r.lines = append(r.lines, strings.TrimSpace(line))
	}
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

// Ingredient reads one line of a list of ingredients, such as "2 cups flour, sifted". A line that cannot be taken apart is the
// item as a whole, so the item is empty only for an empty line. Ingredient does not cut texts; extract.Clean does.
func Ingredient(line string) recipe.Ingredient {
	line = strings.Join(strings.Fields(line), " ")
	if len(line) <= 4*recipe.MaxNote { // a longer line has no parts
		if i, ok := ingredientLine(line); ok {
			return i
		}
	}
	return recipe.Ingredient{Item: line, Raw: line}
}

// Step makes a step of an unchanged instruction, with the times and temperatures that it names. Its index is 0. Step does
// not cut texts; extract.Clean does.
func Step(text string) recipe.Step {
	step := recipe.Step{Text: strings.Join(strings.Fields(text), " ")}
	if len(step.Text) <= recipe.MaxStep { // otherwise the marks of each piece are read
		measure.ReadStep(&step)
	}
	return step
}

// judge refuses a source in which nobody seems to cook, and adds a warning when that is doubtful. It judges only English: in
// other languages a written list is required anyway.
func (r *reader) judge(ctx context.Context) error {
	if !r.english() {
		return nil
	}
	features, err := talk.Observe(ctx, r.sentences)
	if err != nil {
		return err
	}
	r.scores = talk.Score(features)
	d, err := r.document(ctx)
	if err != nil {
		return err
	}
	cooking, err := d.Cooking(ctx)
	switch {
	case err != nil:
		return err
	case len(r.sentences)+len(r.listed)+len(r.instructions) == 0: // there is nothing to judge
	case cooking < talk.Refused:
		return extract.Failed(false, fmt.Errorf("rules: cooking is %.2f likely: %w", cooking, extract.ErrNoRecipe),
			"no recipe was found in the source: as a whole it does not seem to be about cooking")
	case cooking < talk.Doubtful:
		r.warn(WarnDoubtful, "Little in the source speaks of cooking; this may be no recipe.")
	}
	return nil
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
			return calm(candidate) // not cut here: Clean cuts, and reports it
		}
	}
	return extract.Untitled
}

// calm writes a title of capitals only in lower case, with a capital at the beginning.
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
