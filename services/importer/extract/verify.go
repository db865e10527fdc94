package extract

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// slack is the distance in seconds at which a timestamp may lie outside a segment, because extractors round to whole
// seconds.
const slack = 1

// Verify looks up every claim of a recipe in its source, and lists in Unverified each field that it cannot find: of an
// ingredient its item (by the stem of the last noun), its quantity and its unit, both near the item; of a step its text,
// times, temperatures, and its timestamp, which must lie in the video and in a segment; of the recipe its title and
// servings. It removes sentences of the description that it does not find, because not every store keeps marks of the
// description. It removes nothing else. Sentences that address a model are no evidence.
//
// It replaces earlier marks, and adds a warning when there are marks. It ends soon after its context, with an error that wraps the
// cause.
func Verify(ctx context.Context, r *recipe.Recipe, in Input) error {
	in, _ = Bounded(in)
	source, err := sourceOf(ctx, in)
	if err != nil {
		return err
	}
	r.Unverified = nil
	if r.Title != Untitled && !source.hasMost(r.Title) {
		r.Unverified = append(r.Unverified, "title")
	}
	if !source.hasNumbers(r.Servings) {
		r.Unverified = append(r.Unverified, "servings")
	}
	if kept := borneOut(r.Description, source); kept != r.Description {
		r.Description = kept
		warn(r, WarnDescription, "What the source does not bear out was left out of the description.")
	}
	marked := len(r.Unverified) > 0
	for i := range r.Ingredients {
		ingredient := &r.Ingredients[i]
		ingredient.Unverified = source.ingredient(ingredient.Item, string(ingredient.Qty), ingredient.Unit)
		marked = marked || len(ingredient.Unverified) > 0
	}
	for i := range r.Steps {
		if err := talk.Ended(ctx); err != nil {
			return err
		}
		verifyStep(&r.Steps[i], in, source)
		marked = marked || len(r.Steps[i].Unverified) > 0
	}
	if marked {
		warn(r, WarnUnverified, "Some of it was not found in the source; the fields are marked.")
	}
	if source.instructed {
		warn(r, WarnInstructions, "The source gives instructions to a model; those sentences were left out.")
	}
	return nil
}

// sentence matches a sentence of a description, with the space after it.
var sentence = regexp.MustCompile(`(?s).+?(?:[.!?。]+\s+|\n+|$)`)

// borneOut returns the sentences of a text that the source bears out.
func borneOut(text string, source *evidence) string {
	return strings.TrimSpace(sentence.ReplaceAllStringFunc(text, func(s string) string {
		if source.hasMost(s) && source.hasNumbers(s) {
			return s
		}
		return ""
	}))
}

func verifyStep(s *recipe.Step, in Input, source *evidence) {
	s.Unverified = nil
	if s.Timestamp != nil && !spoken(in, *s.Timestamp) {
		s.Unverified = append(s.Unverified, "timestamp_sec")
	}
	if !source.hasMost(s.Text) || !source.hasNumbers(s.Text) {
		s.Unverified = append(s.Unverified, "text")
	}
	if slices.ContainsFunc(s.Times, func(d recipe.Duration) bool { return !source.hasDuration(d.MinSec, d.MaxSec) }) {
		s.Unverified = append(s.Unverified, "times")
	}
	if slices.ContainsFunc(s.Temperatures, func(t recipe.Temperature) bool {
		return !source.hasTemperature(t.Degrees, t.MaxDegrees, t.Level)
	}) {
		s.Unverified = append(s.Unverified, "temperatures")
	}
}

// sourceOf reads all of an input: the transcript in sentences, because an amount and its item may be in two segments, and
// everything else in lines.
func sourceOf(ctx context.Context, in Input) (*evidence, error) {
	source := newEvidence()
	written := in.Description
	if in.Sure != "" {
		written, in.Segments = in.Sure, nil
	}
	sentences, err := talk.Cut(ctx, in.Segments)
	for _, s := range sentences {
		if err = talk.Ended(ctx); err != nil {
			break
		}
		source.add(s.Text, false)
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(written) {
		if err := talk.Ended(ctx); err != nil {
			return nil, err
		}
		source.add(line, true)
	}
	source.add(in.Title, true)
	for _, c := range in.Chapters {
		source.add(c.Title, true)
	}
	for _, at := range source.units {
		slices.Sort(at) // a unit of several words stands at its last
	}
	return source, nil
}

// spoken reports whether a time lies in the video and in a segment.
func spoken(in Input, at float64) bool {
	if in.Untimed || in.Duration > 0 && at > in.Duration.Seconds() {
		return false
	}
	return slices.ContainsFunc(in.Segments, func(s caption.Segment) bool {
		return at >= s.Start.Seconds()-slack && at <= (s.Start+s.Dur).Seconds()+slack
	})
}
