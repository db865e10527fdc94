package worker

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrGoexit is the error of an attempt whose handler called runtime.Goexit.
	ErrGoexit = errors.New("worker: handler called runtime.Goexit")

	// ErrNoHandler is returned when Run is called before any Handle.
	ErrNoHandler = errors.New("worker: no handler registered: call Handle before Run")

	// ErrShutdown is the cause with which a handler's context ends when the worker stops.
	ErrShutdown = errors.New("worker: shutting down")

	// ErrStarted is returned when Run is called twice, or Handle after Run.
	ErrStarted = errors.New("worker: already started")
)

// DecodeError is returned when Policy.Decode refuses a payload. The message goes to the dead letters.
type DecodeError struct {
	// Cause is what Policy.Decode returned.
	Cause error

	// Subject is the subject of the message.
	Subject string
}

// Error implements error.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("worker: payload of %q cannot be decoded: %v", e.Subject, e.Cause)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Cause }

// DriftError is returned when a consumer, bucket or stream on the server has settings with which the worker cannot work.
type DriftError struct {
	// Asset names it, such as "consumer JOBS/enricher".
	Asset string

	// Differences has one line per setting: what it is and what it must be.
	Differences []string

	mends bool // Config.AutoCreate does
}

// Error implements error.
func (e *DriftError) Error() string {
	return fmt.Sprintf("worker: %s is not set as needed: %s (apply the declared settings%s)",
		e.Asset, strings.Join(e.Differences, "; "), orAutoCreate(e.mends))
}

// InsertError is returned when a job could not be inserted.
type InsertError struct {
	// Cause is why.
	Cause error

	// ID is the job's.
	ID string

	// Index is the job's place in the slice that was passed to InsertMany.
	Index int

	// Subject is the job's.
	Subject string

	// Unknown reports whether the job may have been stored all the same.
	Unknown bool
}

// Error implements error.
func (e *InsertError) Error() string {
	outcome := "not inserted"
	if e.Unknown {
		outcome = "perhaps inserted"
	}
	return fmt.Sprintf("worker: job %d (%q on %q) %s: %v", e.Index, clip(e.ID, 64), clip(e.Subject, 256), outcome, e.Cause)
}

// Unwrap returns the cause.
func (e *InsertError) Unwrap() error { return e.Cause }

// MissingError is returned when a consumer, bucket or stream that the worker needs does not exist on the server.
type MissingError struct {
	// Asset names it, such as "bucket jobs".
	Asset string

	// Cause is the server's answer.
	Cause error

	mends bool // Config.AutoCreate does
}

// Error implements error.
func (e *MissingError) Error() string {
	return fmt.Sprintf("worker: %s is missing: %v (create it%s)", e.Asset, e.Cause, orAutoCreate(e.mends))
}

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Cause }

// orAutoCreate is the advice to let a worker mend an asset, where it can.
func orAutoCreate(mends bool) string {
	if !mends {
		return ""
	}
	return ", or set Config.AutoCreate"
}

// PanicError is the error of an attempt whose handler panicked.
type PanicError struct {
	// Stack is the stack of the panicking goroutine.
	Stack []byte

	// Value is what was passed to panic.
	Value any
}

// Error implements error. The text has no stack: that is for logs and dead letters.
func (e *PanicError) Error() string { return fmt.Sprintf("worker: handler panicked: %v", e.Value) }

// Unwrap returns the panic's value when it is an error.
func (e *PanicError) Unwrap() error {
	err, ok := e.Value.(error)
	if !ok {
		return nil
	}
	return err
}

// StuckError is returned by Run when handlers did not return before the hard deadline. Their jobs were handed back and may run
// elsewhere while these still run here.
type StuckError struct {
	// Jobs are the jobs that were still running.
	Jobs []Info
}

// Error implements error.
func (e *StuckError) Error() string {
	names := make([]string, 0, len(e.Jobs))
	for _, job := range e.Jobs {
		names = append(names, fmt.Sprintf("%s (%s)", job.ID, job.Subject))
	}
	return fmt.Sprintf("worker: %d handlers did not return before the hard deadline: %s",
		len(e.Jobs), strings.Join(names, ", "))
}

// TimeoutError is the cause with which a handler's context ends at Policy.Timeout.
type TimeoutError struct {
	// Timeout is the policy's.
	Timeout time.Duration
}

// Error implements error.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("worker: handler ran longer than its timeout of %s", e.Timeout)
}

// RetryError is what [Retry] returns.
type RetryError struct {
	// After is the wait before the next attempt, used as it is: no backoff, no jitter.
	After time.Duration

	// Cause is why, and may be nil.
	Cause error
}

// Retry fails this attempt and asks for the next one after the given wait, instead of the policy's backoff. Use it when a
// provider answered with the time of the next call. A negative wait counts as zero. After the last attempt the job goes to
// the dead letters all the same.
func Retry(after time.Duration, cause error) error {
	return &RetryError{After: max(after, 0), Cause: cause}
}

// Error implements error.
func (e *RetryError) Error() string {
	return withCause(fmt.Sprintf("worker: retry after %s", e.After), e.Cause)
}

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Cause }

// SnoozeError is what [Snooze] returns.
type SnoozeError struct {
	// Delay is the wait before the job is delivered again.
	Delay time.Duration
}

// Snooze puts the job off without using an attempt: the next delivery has the same Job.Attempt. It costs two round trips more
// than [Retry]. A negative delay counts as zero. A job may be snoozed without limit.
func Snooze(delay time.Duration) error { return &SnoozeError{Delay: max(delay, 0)} }

// Error implements error.
func (e *SnoozeError) Error() string { return fmt.Sprintf("worker: snooze for %s", e.Delay) }

// CancelError is what [Cancel] returns.
type CancelError struct {
	// Cause is why, and may be nil.
	Cause error
}

// Cancel gives the job up: it goes to the dead letters at once, even if it has attempts left. Use it for errors that no
// retry can mend.
func Cancel(cause error) error { return &CancelError{Cause: cause} }

// Error implements error.
func (e *CancelError) Error() string { return withCause("worker: cancelled", e.Cause) }

// Unwrap returns the cause.
func (e *CancelError) Unwrap() error { return e.Cause }

func withCause(text string, cause error) string {
	if cause == nil {
		return text
	}
	return text + ": " + cause.Error()
}
