package imports

import (
	"errors"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/internal/retry"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// WarnPhoto is the code of the warning that the recipe was read from a photo.
const WarnPhoto = "read_from_photo"

// WarnTruncated is the code of the warning that a limit cut the source.
const WarnTruncated = "source_truncated"

// PublishedBy is the extractor that a recipe names when its page had it as data.
const PublishedBy = "page"

// inputOf is what an extractor gets to see of a source.
func inputOf(m *source.Material, sourceType string) extract.Input {
	in := extract.Input{
		Description: m.Description, Duration: m.Duration, Language: m.Language, Segments: m.Transcript.Segments, Title: m.Title,
		Image: m.Image, ImageType: m.ImageType, Sure: m.Sure,
		Source: recipe.Source{Type: sourceType, Ref: m.URL}, Untimed: !m.Transcript.Timed,
	}
	for i, c := range m.Chapters {
		chapter := extract.Chapter{Start: c.Start, Title: c.Title}
		if i+1 < len(m.Chapters) {
			chapter.End = m.Chapters[i+1].Start
		}
		in.Chapters = append(in.Chapters, chapter)
	}
	return in
}

// published is the recipe that the page itself has as data. It is its own source, so there is nothing to verify it by.
func published(m *source.Material, in extract.Input) (recipe.Recipe, error) {
	made := *m.Recipe
	made.Source = in.Source
	made.Source.Extractor = PublishedBy
	if made.Language == "" {
		made.Language = m.Language
	}
	extract.Clean(&made)
	if err := made.Validate(); err != nil {
		return recipe.Recipe{}, &FailedError{
			Code: contracts.CodeInvalidRecipe, Message: limit("The page's recipe is not complete: " + err.Error()), Err: err,
		}
	}
	return made, nil
}

// judgeExtract classifies the error of an extractor: whether it may pass.
func judgeExtract(err error) retry.Verdict {
	if failed := extract.Failure(err); failed != nil {
		return retry.Verdict{Again: failed.Retryable && !failed.Refused, After: failed.RetryAfter}
	}
	return retry.Verdict{Again: true} // it took too long
}

// extractFailure returns the failure of an extraction, with a documented message.
func extractFailure(err error) *FailedError {
	failed := extract.Failure(err)
	if failed == nil {
		failed = extract.Failed(true, err, "it took too long")
	}
	f := &FailedError{
		Code: failed.Code, Message: limit(failed.Message), Retryable: failed.Retryable, RetryAfter: failed.RetryAfter,
		Exhausted: failed.Retryable, Refused: failed.Refused, Err: err,
	}
	if failed.Outage {
		f.Outage = sideExtractor
	}
	return f
}

func asStoreError(err error) (*store.Error, bool) { return errors.AsType[*store.Error](err) }

// text returns the transcript of a source, with a line for each segment.
func text(m *source.Material) string {
	var b strings.Builder
	if err := m.Transcript.WriteText(&b); err != nil {
		return ""
	}
	return b.String()
}
