package step

import (
	"errors"

	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

var (
	// ErrFenced is returned when another attempt at the job has taken over. The error is always a [FencedError], which is
	// also the cause with which the handler's context ends. The worker then leaves the job to the other attempt, whatever
	// the handler returns.
	ErrFenced = journal.ErrFenced

	// ErrMisuse is returned when steps are used in a way that cannot work: an invalid name, a name that comes twice in an
	// attempt, too many steps, the context of another job, or a step after the handler has returned.
	ErrMisuse = journal.ErrMisuse

	// ErrNoJournal is returned when the context does not come from a worker.
	ErrNoJournal = errors.New("step: no journal in the context: hand down the handler's, or in a test that of Memory.Attempt")

	// ErrNotRecorded is returned when the server did not confirm a result within the worker's SettleTimeout, or refused it.
	// The step runs again in the next attempt, unless the result was recorded after all.
	ErrNotRecorded = journal.ErrNotRecorded

	// ErrTooLarge is returned, beside the result, when the result has more than [MaxResult] bytes. Nothing was recorded:
	// store the result elsewhere, and return its address from the step.
	ErrTooLarge = journal.ErrTooLarge
)

// FencedError is returned when another attempt has taken over the job. It names the delivery of that attempt.
type FencedError = journal.FencedError

// RecordError is returned when a recorded result cannot be read.
type RecordError = journal.RecordError
