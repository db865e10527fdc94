package worker

import (
	"fmt"
	"time"
)

// RetryError is what [Retry] returns.
type RetryError struct {
	// After is the wait before the next attempt, used as it is: no backoff, no jitter.
	After time.Duration

	// Cause is why, and may be nil.
	Cause error
}

// Retry fails this attempt and asks for the next one after the given wait, instead of the
// policy's backoff. Use it when the far side said when to come back. A negative wait
// counts as zero. On the last attempt the job goes to the dead letters all the same.
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

// Snooze puts the job off without using an attempt: the next delivery has the same
// Job.Attempt. It costs two round trips more than [Retry]. A negative delay counts as
// zero. There is no limit to how often a job is snoozed.
func Snooze(delay time.Duration) error { return &SnoozeError{Delay: max(delay, 0)} }

// Error implements error.
func (e *SnoozeError) Error() string { return fmt.Sprintf("worker: snooze for %s", e.Delay) }

// CancelError is what [Cancel] returns.
type CancelError struct {
	// Cause is why, and may be nil.
	Cause error
}

// Cancel gives the job up: it goes to the dead letters at once, whatever attempts it had
// left. Use it for errors that no retry can mend.
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
