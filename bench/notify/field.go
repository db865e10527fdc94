package main

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// The classes of durability.
const (
	memory      = "in memory"
	everySecond = "synced every second"
	threeEvery  = "on 2 of 3, synced every second"
	always      = "synced before the answer"
	threeAlways = "on 2 of 3, synced before the answer"
)

// field is everybody who takes part, in the order of the tables.
func field() []contestant {
	const some, many = 1_000, 10_000 // for those that wait for a disk at each row
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
		raw := "raw_" + on.name
		all = append(all,
			contestant{
				name: on.name, service: on.service, class: on.class, storage: on.storage, most: on.most, raw: raw, open: openOurs,
				note: "services/notifier: event, plan, rows, messages",
			},
			contestant{
				name: raw, service: on.service, class: on.class, storage: on.storage, most: on.mostRaw, open: openRaw,
				note: "nats.go alone, rows only: publish each, wait for its answer, expect no row of it",
			},
		)
	}
	return append(all,
		contestant{
			name: "postgres_loop", service: "postgres", class: always, most: many, open: openPostgres(insertEach),
			note: "rows only: INSERT of each, unique index, each committed by itself",
		},
		contestant{
			name: "postgres_transaction", service: "postgres", class: always, open: openPostgres(insertTogether),
			note: "rows only: INSERT of each, unique index, all in one transaction",
		},
		contestant{
			name: "postgres_multi", service: "postgres", class: always, open: openPostgres(insertMany),
			note: "rows only: one INSERT of all rows, ON CONFLICT DO NOTHING",
		},
	)
}

// starters start what they run on.
var starters = map[string]rig.Starter{
	"nats":                      startNATS(1, false),
	"nats, sync always":         startNATS(1, true),
	"nats cluster":              startNATS(3, false),
	"nats cluster, sync always": startNATS(3, true),
	"postgres":                  rig.StartPostgres,
}

func startNATS(n int, always bool) rig.Starter {
	return func(ctx context.Context, dir string) (*rig.Service, error) { return rig.StartNATS(ctx, dir, n, always) }
}
