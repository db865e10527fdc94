package main

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/kvlock"
)

// settles is how long one who is woken by a push needs until it waits.
const settles = 20 * time.Millisecond

// field is everybody who takes part, in the order of the tables.
func field() []contestant {
	ours := func(name, service, note string, cfg kvlock.BucketConfig) contestant {
		return contestant{
			name: name, service: service, note: note, settings: settings{Bucket: name, TTL: lockTTL},
			prepare: prepareOurs(cfg), open: openOurs, settle: settles,
		}
	}
	return []contestant{
		ours("r1", "nats", "one server, memory", kvlock.BucketConfig{Storage: jetstream.MemoryStorage}),
		ours("r1_file", "nats", "one server, file, sync every second", kvlock.BucketConfig{}),
		ours("r3", "nats cluster", "three servers, file, sync every second", kvlock.BucketConfig{Replicas: 3}),
		ours("r3_sync_always", "nats cluster, sync always", "three servers, file, synced before it is acknowledged",
			kvlock.BucketConfig{Replicas: 3}),
		{
			name: "rueidis", service: "redis", settle: settles, settings: settings{TTL: lockTTL}, open: openRueidis,
			note: "rueidislock, rueidisaside; one server, memory, no persistence",
		},
		{
			name: "redsync", service: "redis", settings: settings{TTL: lockTTL}, open: openRedsync, polls: true, settle: redsyncRetry * 3 / 2,
			note: "as it comes: asks every 50 to 250 ms; one server, memory, no persistence",
		},
		{
			name: "redislock", service: "redis", settings: settings{TTL: lockTTL}, open: openBSM, polls: true, settle: settles,
			note: "bsm/redislock, asks every 10 ms; one server, memory, no persistence",
		},
		{
			name: "etcd", service: "etcd", settings: settings{TTL: lockTTL}, open: openEtcd,
			settle: 150 * time.Millisecond, // it begins to feed a new watcher after up to 100
			note:   "client/v3/concurrency; one server, file, synced before it is acknowledged",
		},
	}
}

// services are started by name.
var services = map[string]rig.Starter{
	"nats": func(ctx context.Context, dir string) (*rig.Service, error) { return rig.StartNATS(ctx, dir, 1, false) },
	"nats cluster": func(ctx context.Context, dir string) (*rig.Service, error) {
		return rig.StartNATS(ctx, dir, 3, false)
	},
	"nats cluster, sync always": func(ctx context.Context, dir string) (*rig.Service, error) {
		return rig.StartNATS(ctx, dir, 3, true)
	},
	"redis": func(ctx context.Context, dir string) (*rig.Service, error) {
		return rig.StartRedis(ctx, dir, "--appendonly", "no")
	},
	"etcd": rig.StartEtcd,
}
