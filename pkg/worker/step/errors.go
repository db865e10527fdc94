package step

import (
	"errors"

	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

var (
	// ErrFenced is returned when another attempt at the job has taken over. It is always a
	// [FencedError], which is also the cause with which the handler's context ends. Whatever
	// the handler returns then, the worker lets go of the job: it is the other attempt's.
	ErrFenced = journal.ErrFenced

	// ErrMisuse is returned when steps are used in a way that cannot work: a bad name, one
	// that comes twice in an attempt, too many steps, another job's context, a step after
	// the handler has returned.
	ErrMisuse = journal.ErrMisuse

	// ErrNoJournal is returned when the context does not come from a worker.
	ErrNoJournal = errors.New("step: no journal in the context: hand down the handler's, or in a test that of Memory.Attempt")

	// ErrNotRecorded is returned when the server did not confirm within the worker's
	// SettleTimeout that it recorded a result, or refused it. The step runs again in the next
	// attempt, unless the result was recorded after all.
	ErrNotRecorded = journal.ErrNotRecorded

	// ErrTooLarge is returned, beside the result, when that has more than [MaxResult] bytes.
	// Nothing was recorded: store it elsewhere and record where.
	ErrTooLarge = journal.ErrTooLarge
)

// FencedError says by which delivery of the job an attempt was overtaken.
type FencedError = journal.FencedError

// RecordError says that a record cannot be read, and why.
type RecordError = journal.RecordError
