package main

import (
	"context"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// The classes of durability.
const (
	everySecond = "synced every second"
	always      = "synced before the answer"
	threeTimes  = "synced before the answer, on 2 of 3"
	nearly      = "synced within 0.6 s"
)

// ackWait is that of everybody on NATS.
const ackWait = 5 * time.Second

// field is everybody who takes part, in the order of the tables.
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
		all = append(all,
			contestant{
				name: on.name, service: on.service, class: on.class, weight: on.weight, raw: raw, lease: ackWait,
				open: openOurs(false), note: "pkg/worker; unique by ID, within the stream's window",
			},
			contestant{
				name: on.name + "_keyed", service: on.service, class: on.class, weight: on.weight, raw: raw, lease: ackWait,
				open: openOurs(true), note: "pkg/worker; unique by key, with a record of its completion for 10 minutes",
			},
			contestant{
				name: raw, service: on.service, class: on.class, weight: on.weight, lease: ackWait,
				open: openRaw, note: "nats.go alone: work queue, message ID, Consume, DoubleAck",
			},
			contestant{
				name: raw + "_keyed", service: on.service, class: on.class, weight: on.weight,
				open: openRawKeyed, note: "the same with the conditions on a key, and a record before the acknowledgement",
			},
			contestant{
				name: "watermill_" + on.name, service: on.service, class: on.class, weight: on.weight, lease: ackWait,
				open: openWatermill, note: "watermill-nats, JetStream, message ID, synchronous acknowledgement",
			},
		)
	}
	return append(all,
		contestant{
			name: "asynq", service: "redis", class: everySecond, weight: 0.5, open: openAsynq,
			lease: 30 * time.Second, note: "asynq on one Redis, AOF everysec, Unique(10m)",
		},
		contestant{
			name: "asynq_sync_always", service: "redis, sync always", class: always, weight: 0.1, open: openAsynq,
			note: "asynq on one Redis, AOF always, Unique(10m)",
		},
		contestant{
			name: "river", service: "postgres", class: always, weight: 0.2, open: openRiver(true),
			note: "River on one Postgres, UniqueOpts{ByArgs}",
		},
		contestant{
			name: "river_nearly", service: "postgres", class: nearly, weight: 0.2, open: openRiver(false),
			note: "the same with synchronous_commit off",
		},
	)
}

// starters start what they run on.
var starters = map[string]rig.Starter{
	"nats": func(ctx context.Context, dir string) (*rig.Service, error) { return rig.StartNATS(ctx, dir, 1, false) },
	"nats, sync always": func(ctx context.Context, dir string) (*rig.Service, error) {
		return rig.StartNATS(ctx, dir, 1, true)
	},
	"nats cluster, sync always": func(ctx context.Context, dir string) (*rig.Service, error) {
		return rig.StartNATS(ctx, dir, 3, true)
	},
	"postgres": rig.StartPostgres,
	"redis": func(ctx context.Context, dir string) (*rig.Service, error) {
		return rig.StartRedis(ctx, dir, "--appendonly", "yes", "--appendfsync", "everysec")
	},
	"redis, sync always": func(ctx context.Context, dir string) (*rig.Service, error) {
		return rig.StartRedis(ctx, dir, "--appendonly", "yes", "--appendfsync", "always")
	},
}
