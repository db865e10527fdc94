package step

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

const (
	// MaxResult is the largest result of a step as it is encoded, in bytes.
	MaxResult = journal.MaxResult

	// MaxSteps is how many steps a job may have.
	MaxSteps = journal.MaxSteps
)

// Run returns what the step of this name returned in an earlier attempt at the job, or else
// runs fn and records what it returns. When Run has returned a result, no later attempt
// runs fn, whatever becomes of this process.
//
// The result is recorded as JSON, a []byte or a json.RawMessage as it is. Run returns what
// can be read from the record, so a first attempt gets no more than a later one: a field
// that has no JSON is empty in both. When the type of a result changes, give the step a new
// name.
//
// An error of fn is returned as it is, and nothing is recorded; so with a panic. fn may run
// again later then, also in the same attempt. It is given ctx. When it returns a result
// although ctx has ended, that is recorded.
//
// A name has 1 to 100 bytes and comes once in an attempt: [ErrMisuse] is returned
// otherwise, since a second step that silently got the result of the first is worse. In a
// loop, make the item part of the name. Steps may run at the same time, in goroutines that
// the handler waits for.
//
// Errors: [ErrNoJournal] outside a worker; [ErrFenced] when another attempt has taken over;
// [ErrNotRecorded] when fn has run and its result is not known to be recorded, so that it
// will run again; [ErrTooLarge], with the result, when it is larger than [MaxResult];
// a [*RecordError] when what was recorded is no T.
//
// One round trip when fn runs, for a result of more than 4 KB one or more besides. None
// when it does not, but two for the first step of an attempt that is not the first.
func Run[T, A any](ctx context.Context, job *worker.Job[A], name string, fn func(context.Context) (T, error)) (T, error) {
	var result T

	j, err := journalOf(ctx, job)
	if err != nil {
		return result, err
	}

	data, failed := j.Do(ctx, name, func(ctx context.Context) ([]byte, error) {
		result, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		return encode(name, result)
	})
	if data == nil {
		return result, failed
	}

	if err := decode(data, &result); err != nil {
		return result, &RecordError{Cause: err, Job: job.ID, Step: name}
	}
	return result, failed
}

// Do is Run for a step without a result.
func Do[A any](ctx context.Context, job *worker.Job[A], name string, fn func(context.Context) error) error {
	_, err := Run(ctx, job, name, func(ctx context.Context) ([]byte, error) { return nil, fn(ctx) })
	return err
}

// journalOf is the journal that the worker gave with the context.
func journalOf[A any](ctx context.Context, job *worker.Job[A]) (*journal.Journal, error) {
	if job == nil {
		return nil, fmt.Errorf("%w: the job is nil", ErrMisuse)
	}

	j := journal.From(ctx)
	switch {
	case j == nil:
		return nil, ErrNoJournal
	case j.Sequence() != 0 && j.Sequence() != job.Sequence:
		return nil, fmt.Errorf("%w: the context is that of another job than %s", ErrMisuse, job.ID)
	}
	return j, nil
}

func encode[T any](name string, result T) ([]byte, error) {
	switch data := any(result).(type) {
	case []byte:
		return data, nil
	case json.RawMessage:
		return data, nil
	}

	data, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("step: %q: its result has no JSON: %w", name, err)
	}
	return data, nil
}

func decode[T any](data []byte, result *T) error {
	switch into := any(result).(type) {
	case *[]byte:
		*into = data
	case *json.RawMessage:
		*into = data
	default:
		return json.Unmarshal(data, result) //nolint:wrapcheck // RecordError says the rest
	}
	return nil
}
