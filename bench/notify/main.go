// Command notify measures how an event becomes rows and messages in services/notifier, side by side with rows that are
// stored one at a time: an event to 10, 1,000, 10,000 and 100,000 recipients, from its publication until all rows are
// stored, and until all are in the inboxes. It measures as well the costs of a row for clients and servers, how much
// memory the notifier has, and how both grow with the audience.
//
//	go -C bench run ./notify [--rounds N] [--scale X] [--short] [--audience N] [--only REGEXP] [--json]
//
// The notifier and every server are processes of their own. After each row everything is counted: each recipient has to
// have one row, one item, and no record of more than one attempt. Any other count ends the program with 1.
//
// In each round every row is run by every contestant before the next row begins, and every other round goes through the
// contestants backwards. A figure is the median of the rounds, with the least and the greatest of them beside it. The
// largest audience is told in the first round only.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/contracts"
)

func main() {
	rig.ChildMain(childRole, serve)
	o := options{}
	register := func(flags *flag.FlagSet) {
		flags.IntVar(&o.audience, "audience", 100_000, "leave out events to more than `N` recipients")
		flags.StringVar(&o.profile, "profile", "", "write a CPU profile and a heap profile of each notifier to `FOLDER`")
	}
	rig.Main("notify", register, func(ctx context.Context, out io.Writer, shared rig.Options) (any, error) {
		o.Options = shared
		return measure(ctx, out, o)
	})
}

type options struct {
	rig.Options

	audience int
	profile  string
}

// The classes of durability.
const (
	memory      = "in memory"
	everySecond = "synced every second"
	threeEvery  = "on 2 of 3, synced every second"
	always      = "synced before the answer"
	threeAlways = "on 2 of 3, synced before the answer"
)

// field returns the contestants, in the order of the tables.
func field() []contestant {
	const some, many = 1_000, 10_000 // for the contestants that wait for a disk at each row
	var all []contestant
	for _, on := range []struct {
		name, service, class string
		storage              jetstream.StorageType
		most, mostRaw        int
	}{
		{"r1", "nats", memory, jetstream.MemoryStorage, 0, 0},
		{"r1_file", "nats", everySecond, jetstream.FileStorage, 0, 0},
		{"r3", "nats cluster", threeEvery, jetstream.FileStorage, 0, 0},
		{"r1_sync_always", "nats, sync always", always, jetstream.FileStorage, some, some},
		{"r3_sync_always", "nats cluster, sync always", threeAlways, jetstream.FileStorage, many, some},
	} {
		ours := contestant{
			Contestant: rig.Contestant{
				Name: on.name, Service: on.service, Class: on.class, Raw: "raw_" + on.name, Note: "services/notifier: event, plan, rows, messages",
			},
			storage: on.storage, most: on.most, open: openOurs,
		}
		raw := ours
		raw.Name, raw.Raw, raw.most, raw.open = ours.Raw, "", on.mostRaw, openRaw
		raw.Note = "nats.go alone, rows only: publish each, wait for its answer, expect no row of it"
		all = append(all, ours, raw)
	}
	for _, in := range []struct {
		name, note string
		most       int
		insert     inserter
	}{
		{"postgres_loop", "rows only: INSERT of each, unique index, each committed by itself", many, insertEach},
		{"postgres_transaction", "rows only: INSERT of each, unique index, all in one transaction", 0, insertTogether},
		{"postgres_multi", "rows only: one INSERT of all rows, ON CONFLICT DO NOTHING", 0, insertMany},
	} {
		all = append(all, contestant{
			Contestant: rig.Contestant{Name: in.name, Service: "postgres", Class: always, Note: in.note},
			most:       in.most, open: openPostgres(in.insert),
		})
	}
	waiting := all[4] // r3
	waiting.Name, waiting.Raw, waiting.waits = "r3_rows", "", true
	waiting.Note += ", of an event with a time, whose rows are all stored"
	return append(all, waiting)
}

// inbox is the channel of all rows.
const inbox = "inapp"

// contestant is one way to store rows, on one kind of server.
type contestant struct {
	rig.Contestant

	most    int // the number of recipients of its largest event
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
		EventID: event, UserID: userID(i), RecipientType: contracts.RecipientCustomer, Channel: inbox, EventType: eventType,
		Category: "reservations", Template: "reservation.requested", CreatedAt: at, Payload: []byte(payload),
	}
}

func userID(i int) string { return fmt.Sprintf("customer-number-%d", i) }
