package outbox

import "errors"

var (
	// ErrNoSchema is returned when the database has no table event_outbox of this version.
	ErrNoSchema = errors.New("outbox: the table event_outbox is missing or of another version: apply outbox.Schema")

	// ErrUnsuitableStream is returned when the stream removes messages on its own, so that a lost message could not be told
	// from one that was removed on purpose.
	ErrUnsuitableStream = errors.New("outbox: the stream is not suitable")

	// errSession ends the work on a connection that is closed.
	errSession = errors.New("outbox: the connection to NATS is closed")
)
