package notify

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/expediter-io/expediter/cmd/expediter/internal/input"
	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
)

// BadError is returned for a value of a file that is no event. Others may follow.
type BadError struct {
	// Err is the problem.
	Err error

	// Where is its place in the file.
	Where string
}

// Error implements error. The text starts with file:line, so that editors can jump to it.
func (e *BadError) Error() string {
	text := e.Err.Error()
	if invalid, ok := errors.AsType[*contracts.ValidationError](e.Err); ok {
		text = Fields(invalid.Fields)
	}
	return table.Printable(e.Where + ": " + text) // names of fields come from strangers
}

// Unwrap returns Err.
func (e *BadError) Unwrap() error { return e.Err }

// Messages yields the events of a file: JSON, an array of it, or JSON lines; each an Event, or a CloudEvent in structured mode.
// The path "-" is stdin. A [*BadError] is about one of them; every other error is the last thing that it yields.
func Messages(ctx context.Context, path string, stdin io.Reader) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for doc, err := range input.Documents(ctx, path, stdin, contracts.MaxBody) {
			message := Message{Document: doc}
			row, tooLong := errors.AsType[*input.RowError](err)
			switch {
			case tooLong:
				err = &BadError{Where: row.Position.String(), Err: errors.New(row.Fields[0].Problem)}
			case err != nil:
				yield(Message{}, err)
				return
			default:
				if message.Event, err = notifier.ReadEvent(doc.Body); err == nil {
					_, err = message.Event.Fingerprint() // fails for an event that no reader could accept
				}
				if err != nil {
					err = &BadError{Where: doc.Where(), Err: err}
				}
			}
			if !yield(message, err) {
				return
			}
		}
	}
}
