// Package extract turns the text of a source into a recipe, and checks the claims of an extractor against the source.
//
// An [Extractor] reads an [Input]: the timed text of a video, or the text of a page, with its title, description and
// chapters. Package rules has one that needs no network, orchestrator one that asks a service, and openai one that asks a
// model. [Checked] puts the output of any extractor through the same three gates: HTML and addresses are taken out of every
// field and sizes are cut to their bounds ([Clean]), every claim is looked up in the source and marked where it cannot be
// found ([Verify]), and the result is validated. [Failure] returns the meaning of an error for an import.
//
// The text of a source is written by strangers. Sentences that speak to a model ("ignore previous instructions") are no
// evidence for anything, and the rules extractor does not read them.
package extract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Chapter is a named part of a video. It ends where the next one begins.
type Chapter struct {
	// Start counts from the beginning of the video.
	Start time.Duration `json:"start"`
	// Title is the publisher's title.
	Title string `json:"title"`
}

// Input is all that an extractor gets to see. None of it is trusted.
type Input struct {
	// Chapters of the video, in order; may be empty.
	Chapters []Chapter
	// Description is the publisher's text below the video, or the text of a page.
	Description string
	// Duration of the video. Defaults to the end of the last segment.
	Duration time.Duration
	// Image is a photo of a recipe, and ImageType its media type, "image/jpeg". Extractors that do not read images
	// ignore it.
	Image     []byte
	ImageType string
	// Language is the BCP 47 tag of the transcript. Defaults to a guess from the words.
	Language string
	// Segments of the transcript, in order, as [caption.Transcript] has them; may be empty when the description holds the
	// recipe.
	Segments []caption.Segment
	// Sure is the description of a photo without the numbers that could not be read well. When it is set, it alone is evidence,
	// and not the description and the segments. Defaults to none.
	Sure string
	// Source is copied into the recipe.
	Source recipe.Source
	// Title of the video or page.
	Title string
	// Untimed reports whether the times of the segments are meaningless, so that no step gets a timestamp.
	Untimed bool
}

// Extractor makes a recipe of a source. [Failure] classifies its errors.
type Extractor interface {
	// Extract returns the recipe of a source, as the extractor sees it.
	Extract(ctx context.Context, in Input) (recipe.Recipe, error)
}

// Checked returns an extractor whose recipes are cleaned, verified against the source and valid, and have no details. When a recipe cannot
// be made valid, the error wraps that of [recipe.Recipe.Validate]; when nothing of it is in the source, [ErrNoRecipe]. A recipe
// of a transcript with times needs steps.
func Checked(e Extractor) Extractor { return checked{e} }

type checked struct{ Extractor }

func (c checked) Extract(ctx context.Context, in Input) (recipe.Recipe, error) {
	r, err := c.Extractor.Extract(ctx, in)
	if err != nil {
		return recipe.Recipe{}, err
	}
	r.Details = recipe.Details{}
	Clean(&r)
	source, err := verify(ctx, &r, in)
	if err != nil {
		return recipe.Recipe{}, err
	}
	if err := r.Validate(); err != nil {
		return recipe.Recipe{}, fmt.Errorf("extract: the recipe does not hold: %w", err)
	}
	if len(r.Steps) == 0 && len(in.Segments) > 0 && !in.Untimed {
		return recipe.Recipe{}, fmt.Errorf("extract: the recipe does not hold: %w",
			contracts.Mistake("Recipe", "/steps", "is required of a video"))
	}
	if len(in.Image) == 0 && source.invented(&r) { // of a photo, the extractor may see more than the text
		return recipe.Recipe{}, Failed(false, fmt.Errorf("extract: none of %d ingredients and %d steps is in the source: %w",
			len(r.Ingredients), len(r.Steps), ErrNoRecipe), "no recipe was found in the source: nothing of what the extractor returned is in it")
	}
	return r, nil
}

// Bounds of the parts of a source that are read: counts, or bytes.
const (
	maxChapters    = 1000
	maxDescription = 64 << 10
	maxSegment     = 256 << 10
	maxSegments    = 50_000
	maxTitle       = 4 * recipe.MaxTitle
	maxTranscript  = 4 << 20
)

// Bounded returns the part of a source that is read, and reports whether it has cut the source: up to 1,000 chapters, 64 KiB
// of the description, and 50,000 segments or 4 MiB of the transcript, 256 KiB of each segment. It cuts the title as well.
func Bounded(in Input) (out Input, cut bool) {
	segments, total := make([]caption.Segment, 0, min(len(in.Segments), maxSegments)), 0
	for _, s := range in.Segments {
		if len(segments) == maxSegments || total > maxTranscript {
			cut = true
			break
		}
		size := len(s.Text)
		s.Text = redact.Clip(s.Text, maxSegment)
		cut = cut || len(s.Text) < size
		total += len(s.Text)
		segments = append(segments, s)
	}
	cut = cut || len(in.Description) > maxDescription || len(in.Chapters) > maxChapters
	in.Segments, in.Chapters = segments, in.Chapters[:min(len(in.Chapters), maxChapters)]
	in.Description, in.Title = redact.Clip(in.Description, maxDescription), redact.Clip(in.Title, maxTitle)
	return in, cut
}

// ErrNoRecipe is returned when the source holds no recipe that the extractor can read: no ingredients, or no steps.
var ErrNoRecipe = errors.New("extract: no recipe found")

// Messages that the importer's callers know.
const (
	messageFailed  = "AI extraction failed: "
	messageInvalid = "Invalid recipe data from AI"
)

// Error is returned when a service did not extract a recipe from a source.
type Error struct {
	// Code is the class of the error: extraction_failed or invalid_recipe.
	Code contracts.ImportCode
	// Err is the cause, for the log; may be nil. It holds no tokens.
	Err error
	// Message is for a person, as the importer shows it. It holds no secrets, and nothing of the source.
	Message string
	// Outage reports whether the service does not work for any source: a later call may succeed, for this source or another.
	Outage bool
	// Refused reports whether the service refuses our key or account, which is an Outage too.
	Refused bool
	// Retryable reports whether a later attempt may succeed.
	Retryable bool
	// RetryAfter is the wait that the service has asked for, at most an hour; zero when it has asked for none.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string {
	text := "extract: " + e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Failed makes the error of an extraction that failed: code extraction_failed, and a message with the reason.
func Failed(retryable bool, cause error, reason string, args ...any) *Error {
	return &Error{
		Code: failure.ExtractionFailed, Err: cause, Message: messageFailed + fmt.Sprintf(reason, args...), Retryable: retryable,
	}
}

// Failure returns the [*Error] for an error of an [Extractor]: an [*Error] is itself, a recipe that fails validation is
// invalid_recipe, a source without a recipe is final, and an unknown error is retryable. It returns nil for no error, and
// for the end of a context, which is no failure of the source.
func Failure(err error) *Error {
	failed, ok := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return failed
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.Is(err, contracts.ErrInvalid):
		return &Error{Code: failure.InvalidRecipe, Err: err, Message: messageInvalid}
	case errors.Is(err, ErrNoRecipe):
		return Failed(false, err, "no recipe was found in the source")
	default:
		return Failed(true, err, "something went wrong")
	}
}

// slack is the distance in seconds at which a timestamp may lie outside a segment, because extractors round to whole
// seconds.
const slack = 1

// Verify looks up every claim of a recipe in its source, and lists in Unverified each field that it cannot find: of an
// ingredient its item (by the stem of the last noun), its quantity and its unit, both near the item; of a step its text,
// times, temperatures, and its timestamp, which must lie in the video and in a segment; of the recipe its title and
// servings. It removes sentences of the description that it does not find, because not every store keeps marks of the
// description. It removes nothing else. Sentences that address a model are no evidence.
//
// It replaces earlier marks, except that of a quantity that the extractor could not read and left empty, and adds a warning when
// there are marks. It ends soon after its context, with an error that wraps the cause.
func Verify(ctx context.Context, r *recipe.Recipe, in Input) error {
	_, err := verify(ctx, r, in)
	return err
}

func verify(ctx context.Context, r *recipe.Recipe, in Input) (*evidence, error) {
	in, _ = Bounded(in)
	source, err := sourceOf(ctx, in, cmp.Or(r.Language, in.Language))
	if err != nil {
		return nil, err
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
		misread := in.Sure != "" && !strings.Contains(in.Sure, ingredient.Item) // its amount may be a part of the item: "1% cups flour"
		unread := ingredient.Qty == "" && (misread || slices.Contains(ingredient.Unverified, "qty"))
		ingredient.Unverified = source.ingredient(ingredient.Item, string(ingredient.Qty), ingredient.Unit)
		if unread {
			ingredient.Unverified = append(ingredient.Unverified, "qty")
		}
		marked = marked || len(ingredient.Unverified) > 0
	}
	for i := range r.Steps {
		verifyStep(&r.Steps[i], in, source)
		marked = marked || len(r.Steps[i].Unverified) > 0
	}
	if marked {
		warn(r, WarnUnverified, "Some of it was not found in the source; the fields are marked.")
	}
	if len(r.Steps) == 0 {
		warn(r, WarnNoSteps, "The source has a list of ingredients and no steps.")
	}
	if source.instructed {
		warn(r, WarnInstructions, "The source gives instructions to a model; those sentences were left out.")
	}
	return source, nil
}

// sentence matches a sentence of a description, with the space after it.
var sentence = lazyregexp.New(`(?s).+?(?:[.!?。]+\s+|\n+|$)`)

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
func sourceOf(ctx context.Context, in Input, language string) (*evidence, error) {
	source := newEvidence(language)
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
