package plan

import (
	"errors"
	"fmt"
)

var (
	// ErrMismatch is returned for an event whose id came with another payload before. The first one stands.
	ErrMismatch = errors.New("another event has been published under this id: an event that differs needs an id of its own")

	// ErrNotFound is returned for an event that was never seen, and for one that has no plan, or not any more.
	ErrNotFound = errors.New("nothing is kept of such an event")

	// ErrTooFar is returned for an event that is to be delivered later than its plan can wait.
	ErrTooFar = errors.New("too far ahead")

	// ErrTooLarge is returned for an event or an audience that is larger than a plan can be.
	ErrTooLarge = errors.New("too large for a plan")

	// ErrUnpublished is returned for the cancellation of an event that has not been published when as many are cancelled as may be.
	ErrUnpublished = errors.New("too many events are cancelled that have not been published: cancel it when it is published")
)

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrTooLarge, fmt.Sprintf(format, args...))
}
