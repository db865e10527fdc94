package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// The channels.
const (
	inbox   = "inapp"
	counter = "count"
)

// contestant is one way to store rows, on one kind of server.
type contestant struct {
	name    string // in tables, in JSON and for --only
	service string // what it runs on
	class   string // how durable a row is once it counts as stored
	note    string
	raw     string // the contestant that stores the same rows one at a time
	most    int    // recipients of its largest event
	storage jetstream.StorageType

	open func(ctx context.Context, b *bench) (*client, error)
}

// client is a contestant during one row. What it does not offer is nil.
type client struct {
	// tell publishes an event to n recipients and returns when all are notified, or all rows stored where nothing is sent.
	tell func(ctx context.Context, event string, n int) (timing, error)

	// mark is called after the first event, which does not count.
	mark func(ctx context.Context) error

	// settle waits for the rest, and returns the processor time that the client has spent since mark. Without it the
	// client is this process.
	settle func(ctx context.Context) (time.Duration, error)

	// memory is the most that the client had since mark, beyond what it had then, in bytes.
	memory func() int64

	// count counts what is there of all events since mark.
	count func(ctx context.Context) (counts, error)

	close func()
}

// timing is how long after the publication of an event its rows were stored, and sent.
type timing struct {
	stored time.Duration
	sent   time.Duration // 0 where nothing is sent
}

// counts are what there has to be one of for each recipient.
type counts struct {
	stored int
	sent   int // -1 where nothing is sent
	double int // rows, attempts or messages beyond the one
}

// payload is what every event carries.
const payload = `{"reservation_id":"res-81723","date":"2025-01-21","time":"20:30","guests":4,"customer_name":"Ada Lovelace"}`

const eventType = "RESERVATION_REQUESTED"

// row is what everybody stores of one recipient.
func row(event, channel string, i int, at time.Time) contracts.Notification {
	return contracts.Notification{
		EventID: event, UserID: userID(i), RecipientType: contracts.RecipientCustomer, Channel: channel, EventType: eventType,
		Category: "reservations", Template: "reservation.requested", CreatedAt: at, Payload: []byte(payload),
	}
}

func userID(i int) string { return fmt.Sprintf("customer-number-%d", i) }
