package deadletter

import (
	"errors"
	"fmt"
)

var (
	// ErrGone is why a letter cannot be replayed when its job's payload is nowhere any
	// more: the message of a stranded job has been acknowledged late, removed or dropped.
	ErrGone = errors.New("deadletter: the job's message is gone")

	// ErrNoStream is returned when a stream does not exist.
	ErrNoStream = errors.New("deadletter: no such stream")

	// ErrNotFound is returned when there is no dead letter with a sequence.
	ErrNotFound = errors.New("deadletter: no such dead letter")

	// ErrSkip is to be returned by ReplayOptions.Edit for a letter that is to stay as it
	// is. It may be wrapped, to say why.
	ErrSkip = errors.New("deadletter: skipped")

	// ErrUnreadable is why a message of the dead letter stream cannot be replayed when it
	// is not a dead letter: another program's, or damaged.
	ErrUnreadable = errors.New("deadletter: not a dead letter")

	// ErrUnsettled is why a letter is not replayed when an earlier replay of it was
	// interrupted and nothing tells whether its job was published, see the package
	// comment.
	ErrUnsettled = errors.New("deadletter: an earlier replay was interrupted and may have published the job")
)

// TakenError is why the letter of a unique job is not replayed: the key belongs to
// another job by now. So it is with a stream that takes one message of a subject.
type TakenError struct {
	// Sequence is where the job's stream holds what took the key.
	Sequence uint64

	// Subject is the subject of what took it, whose first token tells its state.
	Subject string
}

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("deadletter: another job is in its place by now (%s, sequence %d): discard the letter, or free the key and replay it",
		e.Subject, e.Sequence)
}
