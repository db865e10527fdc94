package main

import (
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// The classes of durability.
const (
	everySecond = "synced every second"
	always      = "synced before the answer"
	threeTimes  = "synced before the answer, on 2 of 3"
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
		about := func(name, raw, note string) rig.Contestant {
			return rig.Contestant{Name: name, Service: on.service, Class: on.class, Note: note, Raw: raw}
		}
		all = append(all,
			contestant{
				Contestant: about(on.name, raw, "pkg/worker; unique by ID, within the stream's window"),
				weight:     on.weight, lease: ackWait, open: openOurs(false),
			},
			contestant{
				Contestant: about(on.name+"_keyed", raw, "pkg/worker; unique by key, with a record of its completion for 10 minutes"),
				weight:     on.weight, lease: ackWait, open: openOurs(true),
			},
			contestant{
				Contestant: about(raw, "", "nats.go alone: work queue, message ID, Consume, DoubleAck"),
				weight:     on.weight, lease: ackWait, open: openRaw,
			},
			contestant{
				Contestant: about("watermill_"+on.name, "", "watermill-nats, JetStream, message ID, synchronous acknowledgement"),
				weight:     on.weight, lease: ackWait, open: openWatermill,
			},
		)
	}
	return append(all,
		contestant{
			Contestant: rig.Contestant{Name: "asynq", Service: "redis", Class: everySecond, Note: "asynq on one Redis, AOF everysec, Unique(10m)"},
			weight:     0.5, open: openAsynq, lease: 30 * time.Second,
		},
		contestant{
			Contestant: rig.Contestant{Name: "river", Service: "postgres", Class: always, Note: "River on one Postgres, UniqueOpts{ByArgs}"},
			weight:     0.2, open: openRiver,
		},
	)
}

// starters start what they run on.
var starters = map[string]rig.Starter{
	"nats":                      rig.StartNATS(1, false),
	"nats, sync always":         rig.StartNATS(1, true),
	"nats cluster, sync always": rig.StartNATS(3, true),
	"postgres":                  rig.StartPostgres,
	"redis":                     rig.StartRedis("--appendonly", "yes", "--appendfsync", "everysec"),
}
