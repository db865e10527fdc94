// Command notify measures how an event becomes rows and messages in services/notifier, side by side with rows that are
// stored one at a time: an event to 10, 1,000 and 10,000 recipients, from its publication until all rows are stored, and
// until all are in the inboxes. It measures as well the costs of a row for clients and servers, and how much memory the
// notifier has.
//
//	go -C bench run ./notify [--rounds N] [--scale X] [--short] [--only REGEXP] [--json]
//
// The notifier and every server are separate processes. After each row everything is counted: each recipient has to
// have one row, one item, and no record of more than one attempt. Any other count ends the program with 1.
//
// In each round every row is run by every contestant before the next row begins, and every other round goes through the
// contestants backwards. A figure is the median of the rounds, with the least and the greatest of them beside it.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/contracts"
)

func main() {
	rig.ChildMain(childRole, serve)
	rig.Main("notify", func(*flag.FlagSet) {}, measure)
}

// The classes of durability.
const (
	memory     = "in memory"
	threeEvery = "on 2 of 3, synced every second"
	always     = "synced before the answer"
)

// field returns the contestants, in the order of the tables.
func field() []contestant {
	var all []contestant
	for _, on := range []struct {
		name, service, class string
		storage              jetstream.StorageType
	}{
		{"r1", "nats", memory, jetstream.MemoryStorage},
		{"r3", "nats cluster", threeEvery, jetstream.FileStorage},
	} {
		ours := contestant{
			Contestant: rig.Contestant{
				Name: on.name, Service: on.service, Class: on.class, Raw: "raw_" + on.name, Note: "services/notifier: event, plan, rows, messages",
			},
			storage: on.storage, open: openOurs,
		}
		raw := ours
		raw.Name, raw.Raw, raw.open = ours.Raw, "", openRaw
		raw.Note = "nats.go alone, rows only: publish each, wait for its answer, expect no row of it"
		all = append(all, ours, raw)
	}
	for _, in := range []struct {
		name, note string
		insert     inserter
	}{
		{"postgres_loop", "rows only: INSERT of each, unique index, each committed by itself", insertEach},
		{"postgres_multi", "rows only: one INSERT of all rows, ON CONFLICT DO NOTHING", insertMany},
	} {
		all = append(all, contestant{
			Contestant: rig.Contestant{Name: in.name, Service: "postgres", Class: always, Note: in.note}, open: openPostgres(in.insert),
		})
	}
	waiting := all[2] // r3
	waiting.Name, waiting.Raw, waiting.waits = "r3_rows", "", true
	waiting.Note += ", of an event with a time, whose rows are all stored"
	return append(all, waiting)
}

// inbox is the channel of all rows.
const inbox = "inapp"

// contestant is one way to store rows, on one kind of server.
type contestant struct {
	rig.Contestant

	storage jetstream.StorageType
	waits   bool // events have a time, which has come, so that each row is stored and then sent

	open func(ctx context.Context, b *bench) (*client, error)
}

// client is a contestant during one row. Operations that it does not offer are nil.
type client struct {
	// tell publishes an event to n recipients and returns when all are notified, or, for a contestant that sends nothing, when all rows are
	// stored.
	tell func(ctx context.Context, event string, n int) (timing, error)

	// mark is called after the first event, which does not count.
	mark func(ctx context.Context) error

	// settle waits for the remaining work, and returns the processor time that the client has spent since mark. If nil, the client is this
	// process.
	settle func(ctx context.Context) (time.Duration, error)

	// memory returns the most memory of the client since mark, less its memory at mark, in bytes.
	memory func() int64

	// count counts the rows and messages of all events since mark.
	count func(ctx context.Context) (counts, error)

	close func()
}

// timing has the times from the publication of an event until its rows were stored, and sent.
type timing struct {
	stored time.Duration
	sent   time.Duration // 0 where nothing is sent
}

// counts are the numbers of rows and messages, one of each for each recipient.
type counts struct {
	stored int // or delivered without being stored
	sent   int // -1 where nothing is sent
	double int // rows, attempts or messages beyond the one
}

// payload is the payload of every event.
const payload = `{"reservation_id":"res-81723","date":"2025-01-21","time":"20:30","guests":4,"customer_name":"Ada Lovelace"}`

const eventType = "RESERVATION_REQUESTED"

// row returns the row of one recipient that all contestants store.
func row(event string, i int, at time.Time) contracts.Notification {
	return contracts.Notification{
		EventID: event, UserID: userID(i), RecipientType: "CUSTOMER", Channel: inbox, EventType: eventType,
		Category: "reservations", Template: "reservation.requested", CreatedAt: at, Payload: []byte(payload),
	}
}

func userID(i int) string { return fmt.Sprintf("customer-number-%d", i) }
