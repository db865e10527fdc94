package journal

import (
	"errors"
	"fmt"
)

var (
	// ErrFenced is the error that every FencedError matches.
	ErrFenced = errors.New("step: another attempt has taken over")

	// ErrGone is returned by Attempt.Check when the job has ended.
	ErrGone = errors.New("step: the job is gone")

	// ErrMisuse is returned when a handler uses steps in a way that cannot work.
	ErrMisuse = errors.New("step: misuse")

	// ErrNotRecorded is returned when the result of a step could not be recorded, or the outcome of recording it is unknown.
	ErrNotRecorded = errors.New("step: result not recorded")

	// ErrTooLarge is returned for a result of more than MaxResult bytes.
	ErrTooLarge = errors.New("step: result is too large")
)

// FencedError is returned when a later attempt has taken over the job's journal, or has ended the job.
type FencedError struct {
	// Deliveries is the number of deliveries of the job when that attempt began, 0 when the job has ended.
	Deliveries int

	// Job is the ID of the job.
	Job string
}

// Error names the job.
func (e *FencedError) Error() string {
	if e.Deliveries == 0 {
		return fmt.Sprintf("step: job %s is gone from its stream: it ended elsewhere, or was deleted", e.Job)
	}
	return fmt.Sprintf("step: another attempt (delivery %d) has taken over job %s", e.Deliveries, e.Job)
}

// Is reports whether target is ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// RecordError is returned when a record cannot be decoded, or a result is not a value of the step's type.
type RecordError struct {
	// Cause is the error of decoding it.
	Cause error

	// Job is the ID of the job.
	Job string

	// Step is the name of the step, empty when the whole record is unreadable.
	Step string
}

// Error has the name of the step and the remedy.
func (e *RecordError) Error() string {
	if e.Step == "" {
		return fmt.Sprintf("step: the journal of job %s cannot be read: %v (remove its key to start the job over)", e.Job, e.Cause)
	}
	return fmt.Sprintf("step: the recorded result of %q of job %s cannot be read: %v (a step whose result has a new type needs a new name)",
		e.Step, e.Job, e.Cause)
}

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Cause }
