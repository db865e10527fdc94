package extract

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

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
	// Refused reports whether the service refuses our key, or our account. It is an Outage of ours.
	Refused bool
	// Retryable reports whether a later attempt may succeed.
	Retryable bool
	// RetryAfter is the wait that the service has asked for, at most an hour; zero when it has asked for none.
	RetryAfter time.Duration
	// Status is the HTTP status of the answer, 0 when there was none.
	Status int
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

// Failed makes the error of an extraction that failed: code extraction_failed, and a message that says what the reason is.
func Failed(retryable bool, cause error, reason string, args ...any) *Error {
	return &Error{
		Code: contracts.CodeExtractionFailed, Err: cause, Message: messageFailed + fmt.Sprintf(reason, args...), Retryable: retryable,
	}
}

// Failure returns the [*Error] for an error of an [Extractor]: an [*Error] is itself, a recipe that fails validation is
// invalid_recipe, a source without a recipe is final, and an unknown error is retryable. It returns nil for no error, and
// for the end of a context, which says nothing of the source.
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
