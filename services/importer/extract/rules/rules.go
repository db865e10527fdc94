package rules

import (
	"context"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/instruct"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
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
	// WarnCut says that the source was longer than is read.
	WarnCut = extract.WarnSourceCut
)

// Bounds of what is read; the rest is left out with a warning.
const (
	maxSegments    = 50_000
	maxTranscript  = 4 << 20
	maxDescription = 64 << 10
	maxSegment     = 256 << 10
)

// Extractor reads recipes by rules. The zero value is ready, and safe for concurrent use.
type Extractor struct{}

var _ extract.Extractor = Extractor{}

// New returns an extractor whose recipes are clean, verified and valid.
func New() extract.Extractor { return extract.Checked(Extractor{}) }

// Extract implements [extract.Extractor]. It takes time linear in the length of the source, about a millisecond for a
// minute of speech. The error wraps [extract.ErrNoRecipe] when there are no ingredients or no steps.
func (Extractor) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	if err := ctx.Err(); err != nil {
		return recipe.Recipe{}, fmt.Errorf("rules: %w", context.Cause(ctx))
	}
	r := &reader{in: in}
	r.prepare()
	r.recipe.Title = title(in.Title)
	r.recipe.Language = r.language
	r.recipe.Source = in.Source
	r.recipe.Source.Extractor = Name
	r.readDescription()
	r.readSteps()
	r.readIngredients()
	if len(r.recipe.Steps) == 0 || len(r.recipe.Ingredients) == 0 {
		return recipe.Recipe{}, fmt.Errorf("rules: %d ingredients and %d steps in %d sentences and %d lines of description: %w",
			len(r.recipe.Ingredients), len(r.recipe.Steps), len(r.sentences), len(r.lines), extract.ErrNoRecipe)
	}
	return r.recipe, nil
}

// reader is one extraction.
type reader struct {
	in        extract.Input
	language  string
	lines     []string // of the description, without those that speak to a model
	sentences []talk.Sentence
	scores    []float64
	recipe    recipe.Recipe

	listed       []recipe.Ingredient // the list in the description
	instructions []string            // the method in the description
}

func (r *reader) warn(code, text string) {
	r.recipe.Warnings = append(r.recipe.Warnings, recipe.Warning{Code: code, Text: text})
}

// prepare bounds the source, cuts it into sentences and lines, and drops what speaks to a model.
func (r *reader) prepare() {
	cut := false
	description := r.in.Description
	if len(description) > maxDescription {
		description, cut = words.Cut(description, maxDescription), true
	}
	instructed := false
	for line := range strings.Lines(extract.PlainText(description)) {
		if instruct.Speaks(line) {
			instructed = true
			continue
		}
		r.lines = append(r.lines, strings.TrimSpace(line))
	}
	var segments []talk.Segment
	total := 0
	for _, s := range r.in.Segments {
		if len(segments) == maxSegments || total > maxTranscript {
			cut = true
			break
		}
		text := words.Cut(s.Text, maxSegment)
		cut = cut || len(text) < len(s.Text)
		total += len(text)
		segments = append(segments, talk.Segment{Start: s.Start.Seconds(), End: (s.Start + s.Dur).Seconds(), Text: text})
	}
	for _, s := range talk.Sentences(segments) {
		if instruct.Speaks(s.Text) {
			instructed = true
			continue
		}
		r.sentences = append(r.sentences, s)
	}
	if instructed {
		r.warn(extract.WarnInstructions, "The source gives instructions to a model; those sentences were left out.")
	}
	if cut {
		r.warn(WarnCut, "The source is longer than is read; its end was left out.")
	}
	r.language = languageOf(r.in, r.sentences)
}
