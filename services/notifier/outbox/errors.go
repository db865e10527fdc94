package outbox

import "errors"

var (
	// ErrNoSchema is returned when the database has no table event_outbox of this version.
	ErrNoSchema = errors.New("outbox: the table event_outbox is missing or of another version: apply outbox.Schema")

	// ErrUnsuitableStream is returned when the stream does not keep what is published to it, so that nobody could tell
	// a message that was lost from one that was removed on purpose.
	ErrUnsuitableStream = errors.New("outbox: the stream is not suitable")

	// errSession ends what runs on a connection that is no more.
	errSession = errors.New("outbox: the connection to NATS is closed")
)
