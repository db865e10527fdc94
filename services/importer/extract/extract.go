package extract

import (
	"context"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Chapter is a named part of a video.
type Chapter struct {
	// Start and End count from the beginning of the video; End is 0 when it is not known.
	Start, End time.Duration
	Title      string
}

// Input is all that an extractor gets to see. Nothing of it is trusted.
type Input struct {
	// Chapters of the video, in order; may be empty.
	Chapters []Chapter
	// Description is what the publisher wrote below the video, or the text of a page.
	Description string
	// Duration of the video. Defaults to the end of the last segment.
	Duration time.Duration
	// Image is a photo of a recipe, and ImageType its media type, "image/jpeg". Extractors that cannot see leave it out.
	Image     []byte
	ImageType string
	// Language is the BCP 47 tag of the transcript. Defaults to what the words look like.
	Language string
	// Segments of the transcript, in order, as [caption.Transcript] has them; may be empty when the description holds the
	// recipe.
	Segments []caption.Segment
	// Sure is the description of a photo without the numbers that could not be read well: it alone is evidence then, and not the
	// description and the segments. Defaults to none.
	Sure string
	// Source is copied into the recipe.
	Source recipe.Source
	// Title of the video or page.
	Title string
	// Untimed is true when the times of the segments mean nothing, so that no step gets a timestamp.
	Untimed bool
}

// Extractor makes a recipe of a source. [Failure] says what its errors mean.
type Extractor interface {
	// Extract returns the recipe of a source, as the extractor sees it.
	Extract(ctx context.Context, in Input) (recipe.Recipe, error)
}

// Checked returns an extractor whose recipes are cleaned, verified against the source and valid. The error of one that
// cannot be made valid wraps that of [recipe.Recipe.Validate].
func Checked(e Extractor) Extractor { return checked{e} }

type checked struct{ Extractor }

func (c checked) Extract(ctx context.Context, in Input) (recipe.Recipe, error) {
	r, err := c.Extractor.Extract(ctx, in)
	if err != nil {
		return recipe.Recipe{}, err
	}
	Clean(&r)
	if err := verify(&r, in, func() error { return ended(ctx) }); err != nil {
		return recipe.Recipe{}, err
	}
	if err := r.Validate(); err != nil {
		return recipe.Recipe{}, fmt.Errorf("extract: the recipe does not hold: %w", err)
	}
	return r, nil
}

// ended returns the cause of the end of a context that has ended.
func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("extract: %w", context.Cause(ctx))
	}
	return nil
}

// Bounds of what is read of a source, in bytes where they are no counts.
const (
	maxChapters    = 1000
	maxDescription = 64 << 10
	maxSegment     = 256 << 10
	maxSegments    = 50_000
	maxTitle       = 4 * recipe.MaxTitle
	maxTranscript  = 4 << 20
)

// Bounded returns the part of a source that is read, and reports whether that is less than all of it: up to 1,000 chapters,
// 64 KiB of the description, and 50,000 segments or 4 MiB of the transcript, of each segment 256 KiB. A title is cut as well.
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
