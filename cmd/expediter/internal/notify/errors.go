package notify

import (
	"errors"
	"fmt"
)

var (
	// ErrMismatch is returned for an event under whose id another one was published.
	ErrMismatch = errors.New("another event was published under this id: a different event needs an id of its own")

	// ErrNotEnded is returned when it is not known of all rows how they end.
	ErrNotEnded = errors.New("not all of it has ended")

	// ErrNotFound is returned when the notifier knows no such event.
	ErrNotFound = errors.New("not found")

	// ErrUnavailable is returned when no notifier answers, or the one that answers cannot work.
	ErrUnavailable = errors.New("unavailable")
)

// RefusedError is returned for a request that the notifier did not take.
type RefusedError struct {
	// Code is an HTTP status.
	Code string

	// Text says why.
	Text string
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the notifier refuses: %s (%s)", e.Text, e.Code)
}

// UnplannedError is returned for an event that the notifier took and could not plan.
type UnplannedError struct {
	// EventID is the event.
	EventID string

	// Reason is why.
	Reason string
}

// Error implements error.
func (e *UnplannedError) Error() string {
	return fmt.Sprintf("no user is notified of event %.80q: %s", e.EventID, e.Reason)
}
