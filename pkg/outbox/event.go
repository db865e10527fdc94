package outbox

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// Names of the events that a relay logs, as the message of the record.
const (
	// EventConnected (info): the relay is connected to NATS and publishes. Fields "server", "stream".
	EventConnected = "outbox.connected"

	// EventConnectionError (warn): an error of the connection to NATS, which may close it. Field "error". An error handler in
	// Config.NATSOptions replaces this event.
	EventConnectionError = "outbox.connection_error"

	// EventDisconnected (warn): there is no connection to NATS, or the stream does not answer. Fields "error", "delay".
	EventDisconnected = "outbox.disconnected"

	// EventFailed (warn): the database failed, or the stream did not answer; the relay tries again. Fields "doing", "error",
	// "delay".
	EventFailed = "outbox.failed"

	// EventListenFailed (warn): the relay gets no notifications and looks for rows every Config.Poll. Fields "error", "delay".
	EventListenFailed = "outbox.listen_failed"

	// EventLost (warn): the stream has lost acknowledged messages; their rows are published again. Fields "lane", "rows".
	EventLost = "outbox.lost"

	// EventRefused (warn): the server refused an event; the relay tries again. Fields "event_id", "attempt", "delay", "error".
	EventRefused = "outbox.refused"

	// EventSetAside (error): an event was set aside. Fields "event_id", "reason".
	EventSetAside = "outbox.set_aside"
)

// Hooks observe a relay. Each may be nil. They are called from the goroutines that do the work, so they must be quick and must
// not block.
type Hooks struct {
	// Deleted is called with the number of rows that were deleted, after they were read back or kept.
	Deleted func(rows int)

	// Lost is called with the number of rows that the stream has lost. They are published again.
	Lost func(rows int)

	// Published is called for each row that the stream acknowledged and the relay marked.
	Published func(Published)

	// Ready is called with true when the relay publishes, and with false and the reason when it cannot.
	Ready func(ready bool, reason error)

	// Sending is called with the headers of each event before it is published, and may add to them. The function that it returns is
	// called with what became of that.
	Sending func(header nats.Header) (sent func(error))

	// SetAside is called for each row that was set aside.
	SetAside func(eventID, reason string)
}

// Published is a row that was published.
type Published struct {
	// Age is the time since the row was inserted.
	Age time.Duration

	// Duplicate reports whether the stream already held the event: a relay ended before it could mark the row.
	Duplicate bool

	// EventID is the id of the event.
	EventID string

	// Sequence is the sequence of its message in the stream.
	Sequence uint64
}

var (
	// ErrNoSchema is returned when the database has no table event_outbox of this version.
	ErrNoSchema = errors.New("outbox: the table event_outbox is missing or of another version: apply outbox.Schema")

	// ErrUnsuitableStream is returned when the stream removes messages on its own, so that a lost message could not be told
	// from one that was removed on purpose.
	ErrUnsuitableStream = errors.New("outbox: the stream is not suitable")

	// errSession ends the work on a connection that is closed.
	errSession = errors.New("outbox: the connection to NATS is closed")
)
