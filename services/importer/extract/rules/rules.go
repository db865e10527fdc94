package rules

import (
	"context"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/instruct"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Name is what recipes name as their extractor.
const Name = "rules"

// Codes of the warnings that this extractor gives.
const (
	// WarnLanguage says that the language is not one whose talk it can follow.
	WarnLanguage = "language_unsupported"
	// WarnNoTimes says that the steps come from a description and have no timestamps.
	WarnNoTimes = "no_timestamps"
	// WarnSpoken says that there was no list of ingredients: they were gathered from what is said.
	WarnSpoken = "ingredients_from_speech"
	// WarnDoubtful says that little in the source speaks of cooking, so that the recipe may be none.
	WarnDoubtful = "cooking_doubtful"
	// WarnCut says that the source was longer than is read.
	WarnCut = extract.WarnSourceCut
)

// Extractor reads recipes by rules. The zero value is ready, and safe for concurrent use.
type Extractor struct{}

var _ extract.Extractor = Extractor{}

// New returns an extractor whose recipes are clean, verified and valid.
func New() extract.Extractor { return extract.Checked(Extractor{}) }

// Extract implements [extract.Extractor]. It takes time linear in the length of the source, about a millisecond for a
// minute of speech, and ends soon after its context. The error wraps [extract.ErrNoRecipe] when the source as a whole does not
// speak of cooking, when there are no ingredients or no steps, and when the language is none that is read; its message says
// which.
func (Extractor) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	r := &reader{stop: func() error {
		if ctx.Err() != nil {
			return fmt.Errorf("rules: %w", context.Cause(ctx))
		}
		return nil
	}}
	if err := r.prepare(in); err != nil {
		return recipe.Recipe{}, err
	}
	r.recipe.Title = title(r.in.Title)
	r.recipe.Language = r.language
	r.recipe.Source = in.Source
	r.recipe.Source.Extractor = Name
	for _, read := range []func() error{r.readDescription, r.judge, r.readSteps, r.readIngredients} {
		if err := read(); err != nil {
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
	stop      func() error // the error of a context that has ended
	language  string
	foreign   bool     // the language is not English, whether or not it has a name
	lines     []string // of the description, without those that speak to a model
	sentences []talk.Sentence
	scores    []float64
	recipe    recipe.Recipe

	listed       []recipe.Ingredient // the list in the description
	instructions []string            // the method in the description
}

// nothing is the error of a source in which ingredients or steps are missing.
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

// prepare bounds the source, cuts it into sentences and lines, and drops what speaks to a model.
func (r *reader) prepare(in extract.Input) error {
	in, cut := extract.Bounded(in)
	r.in = in
	instructed := false
	for line := range strings.Lines(extract.PlainText(in.Description)) {
		if instruct.Speaks(line) {
			instructed = true
			continue
		}
		r.lines = append(r.lines, strings.TrimSpace(line))
	}
	segments := make([]talk.Segment, len(in.Segments))
	for i, s := range in.Segments {
		segments[i] = talk.Segment{Start: s.Start.Seconds(), End: (s.Start + s.Dur).Seconds(), Text: s.Text}
	}
	sentences, err := talk.Cut(segments, r.stop)
	for _, s := range sentences {
		if err = r.stop(); err != nil {
			break
		}
		if instruct.Speaks(s.Text) {
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
