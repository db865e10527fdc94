// Command jobs measures pkg/worker side by side with its peers, over TCP on the loopback: unique no-op jobs inserted and
// worked to completion as the system itself records it, the time from insert to start at 200 jobs a second, five durable
// steps, the restart of a job after a kill -9 of its worker, and a queue that grows a hundredfold.
//
//	go -C bench run ./jobs [--rounds N] [--scale X] [--short] [--queued N] [--only REGEXP] [--json]
//
// Every server is a separate process, so that its CPU time is counted apart: NATS (one server, one that syncs before
// every acknowledgement, and three of those), and redis-server and postgres where they are installed. A missing one is
// named and skipped; README.md beside this folder says how to install it.
//
// In each round every row is run by every contestant before the next row begins, and every other round goes through the
// contestants backwards. A figure is the median of the rounds, with the least and the greatest of them beside it.
package main

import (
	"context"
	"flag"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

func main() {
	rig.ChildMain(childRole, serveTask)
	o := options{}
	register := func(flags *flag.FlagSet) {
		flags.BoolVar(&o.slow, "slow", false, "wait for the job of a dead worker also where that takes minutes (asynq)")
		flags.IntVar(&o.queued, "queued", 200_000, "how many `JOBS` the queue grows to, from a hundredth of that")
	}
	rig.Main("jobs", register, func(ctx context.Context, shared rig.Options) (*rig.Report, error) {
		o.Options = shared
		return measure(ctx, o)
	})
}

type options struct {
	rig.Options

	queued int
	slow   bool
}

// contestant is one system on one kind of server.
type contestant struct {
	rig.Contestant

	ours   bool    // pkg/worker, which must lose no job and run none twice
	weight float64 // the factor of the number of operations: a contestant that syncs each job gets fewer
	open   func(ctx context.Context, s settings) (*client, error)

	// lease is the time that the system, as configured here, waits for a sign of life of a worker. Without a lease the restart of a job is
	// not measured: it would take an hour.
	lease time.Duration
}

// settings are the settings of a client, in this process or a separate one.
type settings struct {
	Address string
	Queue   string // of this run alone
	Old     bool   // the queue is there
}

// handler handles a job.
type handler func(ctx context.Context, id string) error

// works works jobs in a number of slots, until stop is called.
type works func(ctx context.Context, slots int, handle handler) (stop func() error, err error)

// client has the operations of a contestant in one process, with separate connections. Operations that it does not offer are nil.
type client struct {
	// insert inserts a unique job.
	insert func(ctx context.Context, id string) error

	// work works jobs in a number of slots, until stop is called.
	work works

	// recorded returns the number of jobs that the system has recorded as completed.
	recorded func(ctx context.Context) (int, error)

	// steps works jobs of five durable steps that do nothing.
	steps works

	// queue puts n jobs from the given on into the queue. They have no worker here.
	queue func(ctx context.Context, from, n int) error

	// close ends the client and removes the queue.
	close func()
}

const (
	producers = 32
	slots     = 100
	fiveSteps = 5
)

// The classes of durability.
const (
	everySecond = "synced every second"
	always      = "synced before the answer"
	threeTimes  = "synced before the answer, on 2 of 3"
)

// ackWait is the AckWait of all contestants on NATS.
const ackWait = 5 * time.Second

// field returns the contestants, in the order of the tables.
func field() []contestant {
	var all []contestant
	for _, on := range []struct {
		name, service, class string
		weight               float64
	}{
		{"r1", "nats", everySecond, 1},
		{"r1_sync_always", "nats, sync always", always, 0.1},
		{"r3_sync_always", "nats cluster, sync always", threeTimes, 0.3},
	} {
		raw := "raw_" + on.name
		for _, of := range []struct {
			name, raw, note string
			open            func(ctx context.Context, s settings) (*client, error)
		}{
			{on.name, raw, "pkg/worker; unique by ID, within the stream's window", openOurs(false)},
			{on.name + "_keyed", raw + "_keyed", "pkg/worker; unique by key, with a record of its completion for 10 minutes", openOurs(true)},
			{raw, "", "nats.go alone: work queue, message ID, Consume, DoubleAck", openRaw(false)},
			{raw + "_keyed", "", "nats.go alone, in the same writes as the keyed", openRaw(true)},
		} {
			all = append(all, contestant{
				Contestant: rig.Contestant{Name: of.name, Service: on.service, Class: on.class, Note: of.note, Raw: of.raw},
				ours:       of.raw != "", weight: on.weight, lease: ackWait, open: of.open,
			})
		}
	}
	return append(all,
		contestant{
			Contestant: rig.Contestant{Name: "asynq", Service: "redis, everysec", Class: everySecond, Note: "asynq on one Redis, AOF everysec, Unique(10m)"},
			weight:     0.5, open: openAsynq, lease: 30 * time.Second,
		},
		contestant{
			Contestant: rig.Contestant{Name: "river", Service: "postgres", Class: always, Note: "River on one Postgres, UniqueOpts{ByArgs}"},
			weight:     0.2, open: openRiver,
		},
	)
}
