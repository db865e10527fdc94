package deadletter

import (
	"errors"
	"fmt"
)

var (
	// ErrGone is the error of a stranded message that cannot be replayed because it is no longer in its stream: it was
	// acknowledged late, removed or dropped.
	ErrGone = errors.New("deadletter: the job's message is gone")

	// ErrNoStream is returned when a stream does not exist.
	ErrNoStream = errors.New("deadletter: no such stream")

	// ErrNotFound is returned when no dead letter has the sequence.
	ErrNotFound = errors.New("deadletter: no such dead letter")

	// ErrSkip is what ReplayOptions.Edit returns for a letter that is to stay as it is. Wrap it to add the reason.
	ErrSkip = errors.New("deadletter: skipped")

	// ErrUnreadable is the error of a message that cannot be replayed because it is not a dead letter: it is another
	// program's, or damaged.
	ErrUnreadable = errors.New("deadletter: not a dead letter")

	// ErrUnsettled is the error of a letter that is not replayed because an earlier replay of it was interrupted and it is
	// unknown whether that published the job, see the package comment.
	ErrUnsettled = errors.New("deadletter: an earlier replay was interrupted and may have published the job")
)

// TakenError is the error of a letter that is not replayed because another job holds the key of its job by now, or the
// subject in a stream that takes one message for each.
type TakenError struct {
	// Sequence is the position of that other job, or of its record, in the job's stream.
	Sequence uint64

	// Subject is the subject of that message. Its first token shows whether it is a job, a schedule or a record.
	Subject string
}

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("deadletter: another job is in its place by now (%s, sequence %d): discard the letter, or free the key and replay it",
		e.Subject, e.Sequence)
}
