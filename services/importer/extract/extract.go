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
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
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

// Checked returns an extractor whose recipes are cleaned, verified against the source and valid. When a recipe cannot
// be made valid, the error wraps that of [recipe.Recipe.Validate].
func Checked(e Extractor) Extractor { return checked{e} }

type checked struct{ Extractor }

func (c checked) Extract(ctx context.Context, in Input) (recipe.Recipe, error) {
	r, err := c.Extractor.Extract(ctx, in)
	if err != nil {
		return recipe.Recipe{}, err
	}
	Clean(&r)
	if err := Verify(ctx, &r, in); err != nil {
		return recipe.Recipe{}, err
	}
	if err := r.Validate(); err != nil {
		return recipe.Recipe{}, fmt.Errorf("extract: the recipe does not hold: %w", err)
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
		s.Text = words.Cut(s.Text, maxSegment)
		cut = cut || len(s.Text) < size
		total += len(s.Text)
		segments = append(segments, s)
	}
	cut = cut || len(in.Description) > maxDescription || len(in.Chapters) > maxChapters
	in.Segments, in.Chapters = segments, in.Chapters[:min(len(in.Chapters), maxChapters)]
	in.Description, in.Title = words.Cut(in.Description, maxDescription), words.Cut(in.Title, maxTitle)
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
		Code: contracts.CodeExtractionFailed, Err: cause, Message: messageFailed + fmt.Sprintf(reason, args...), Retryable: retryable,
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
		return &Error{Code: contracts.CodeInvalidRecipe, Err: err, Message: messageInvalid}
	case errors.Is(err, ErrNoRecipe):
		return Failed(false, err, "no recipe was found in the source")
	default:
		return Failed(true, err, "something went wrong")
	}
}
