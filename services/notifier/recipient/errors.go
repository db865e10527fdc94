package recipient

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrChanged is returned for an edit of another revision than the one that is there.
	ErrChanged = errors.New("the record has another revision: read it again")

	// ErrForgotten is returned for a recipient whose data was erased.
	ErrForgotten = errors.New("the data of the recipient was erased")

	// ErrIncomplete is returned when a list of recipients broke off.
	ErrIncomplete = errors.New("the list of recipients broke off")

	// ErrKept is returned for an edit that takes an opt-out back and is not the recipient's own.
	ErrKept = errors.New("an opt-out is taken back by its person only")

	// ErrNoAggregate is returned when an event that concerns those of its aggregate does not say which that is.
	ErrNoAggregate = errors.New("the event has no aggregate_id and no restaurant_id, so whom it concerns cannot be looked up")

	// ErrNoUser is returned when an event that concerns its user does not name one.
	ErrNoUser = errors.New("the event has no user_id, and its rule is for the user whom the event names")

	// ErrTooLarge is returned for an edit that makes a record larger than [MaxDocument].
	ErrTooLarge = fmt.Errorf("the record would have more than %d KiB", MaxDocument>>10)

	// ErrUnknown is returned for a recipient that the directory does not have.
	ErrUnknown = errors.New("there is no such user")
)

// Error is why recipients could not be found.
type Error struct {
	// Cause is what lay below.
	Cause error

	// Permanent says that asking again cannot help: the event, or the source's answer to it, has to change.
	Permanent bool

	// RetryAfter is how long the source wants to be left alone. Zero means that it did not say.
	RetryAfter time.Duration
}

// Error says what went wrong.
func (e *Error) Error() string { return fmt.Sprintf("recipients: %v", e.Cause) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func permanent(err error) error { return &Error{Cause: err, Permanent: true} }

func temporary(err error) error { return &Error{Cause: err} }
