package outbox

import "time"

// Names of the events that a relay logs, as the message of the record.
const (
	// EventConnected (info): the relay is connected to NATS and publishes. Fields "server", "stream".
	EventConnected = "outbox.connected"

	// EventConnectionError (warn): something went wrong on the connection to NATS, which may end by it. Field "error".
	// NATSOptions may have another handler of errors.
	EventConnectionError = "outbox.connection_error"

	// EventDisconnected (warn): there is no connection to NATS, or the stream does not answer. Fields "error", "delay".
	EventDisconnected = "outbox.disconnected"

	// EventFailed (warn): the database failed, or the stream did not answer; it is tried again. Fields "doing", "error",
	// "delay".
	EventFailed = "outbox.failed"

	// EventListenFailed (warn): the relay is not told of new rows and looks for them now and then. Fields "error", "delay".
	EventListenFailed = "outbox.listen_failed"

	// EventLost (warn): the stream no longer has what it acknowledged; the rows are published again. Fields "lane", "rows".
	EventLost = "outbox.lost"

	// EventRefused (warn): an event was refused and is tried again. Fields "event_id", "attempt", "delay", "error".
	EventRefused = "outbox.refused"

	// EventSetAside (error): an event was set aside. Fields "event_id", "reason".
	EventSetAside = "outbox.set_aside"
)

// Hooks observe a relay, for metrics. Each may be nil. They are called from the goroutines that do the work, so they must be
// quick and must not block.
type Hooks struct {
	// Deleted is called with how many rows were deleted, after they were read back, or after they were kept.
	Deleted func(rows int)

	// Lost is called with how many rows the stream has lost. They are published again.
	Lost func(rows int)

	// Published is called for each row that the stream has acknowledged and that is marked.
	Published func(Published)

	// Ready is called with true when the relay publishes, and with false and the reason when it cannot.
	Ready func(ready bool, reason error)

	// SetAside is called for each row that was set aside.
	SetAside func(eventID, reason string)
}

// Published is a row that was published.
type Published struct {
	// Age is how long ago the row was inserted.
	Age time.Duration

	// Duplicate says that the stream had it: a relay died before it could mark it.
	Duplicate bool

	// EventID is the event.
	EventID string

	// Sequence is where the stream has it.
	Sequence uint64
}

// The points that a relay passes, in order: between any two of them its process may die.
const (
	pointClaimed      = "claimed"      // lanes are locked
	pointAcknowledged = "acknowledged" // the stream has some rows, none is marked
	pointMarked       = "marked"       // rows are marked, not committed
	pointCommitted    = "committed"    // they are
	pointReadBack     = "read back"    // rows were found in the stream, none is deleted
)
