// Package store defines the interface of a store of recipes. There is a package for each store.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Store stores the status and the recipes of imports. A second call of a method with the same arguments, also by two
// processes at the same time, changes nothing.
type Store interface {
	// Status returns the store's status of a job, nil when it does not know the job, or keeps no status.
	Status(ctx context.Context, jobID string) (*contracts.ImportStatus, error)

	// SetStatus stores the status of a job.
	SetStatus(ctx context.Context, jobID string, status contracts.ImportStatus) error

	// SaveTranscript stores the transcript of a job's source.
	SaveTranscript(ctx context.Context, jobID string, segments []caption.Segment) error

	// Create keeps the recipe of a job and returns its id. A second recipe of a job is not kept: Create returns the id
	// of the first.
	Create(ctx context.Context, draft Draft) (recipeID string, err error)
}

// Draft is a recipe to be kept.
type Draft struct {
	JobID   string
	OwnerID string
	Recipe  recipe.Recipe

	// Transcript is the spoken text of the source, with a line "[12.34s] text" for each segment; empty when there is
	// none.
	Transcript string
}

// ErrNotFound is returned when there is no such recipe.
var ErrNotFound = errors.New("importer: there is no such recipe")

// Error is returned when a store refused a call or failed.
type Error struct {
	// Op is the operation, such as "create recipe".
	Op string

	// Status is the HTTP status of the answer, 0 when there was none.
	Status int

	// Refused reports whether the store refuses our token.
	Refused bool

	// Retryable reports whether a later call may succeed: the store failed, was too slow, could not be reached, or refuses our
	// token.
	Retryable bool

	// RetryAfter is the wait that the store asks for, 0 when it asks for none.
	RetryAfter time.Duration

	// Err is the cause.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s: the store answered %d: %v", e.Op, e.Status, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Op, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether a call that failed with err may succeed later: any may, except one that a store
// refused for good.
func Retryable(err error) bool {
	if failed, ok := errors.AsType[*Error](err); ok {
		return failed.Retryable
	}
	return true
}
