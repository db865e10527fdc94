package extract

import (
	"context"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/services/importer/caption"
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
	Verify(&r, in)
	if err := r.Validate(); err != nil {
		return recipe.Recipe{}, fmt.Errorf("extract: the recipe does not hold: %w", err)
	}
	return r, nil
}
