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
			Contestant: rig.Contestant{Name: name, Service: service, Note: note}, settings: settings{Bucket: name, TTL: lockTTL},
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
			Contestant: rig.Contestant{
				Name: "rueidis", Service: "redis", Note: "rueidislock, rueidisaside; one server, memory, no persistence",
			},
			settings: settings{TTL: lockTTL}, open: openRueidis, settle: settles,
		},
		{
			Contestant: rig.Contestant{
				Name: "redsync", Service: "redis", Note: "as it comes: asks every 50 to 250 ms; one server, memory, no persistence",
			},
			settings: settings{TTL: lockTTL}, open: openRedsync, polls: true, settle: redsyncRetry * 3 / 2,
		},
		{
			Contestant: rig.Contestant{
				Name: "redislock", Service: "redis", Note: "bsm/redislock, asks every 10 ms; one server, memory, no persistence",
			},
			settings: settings{TTL: lockTTL}, open: openBSM, polls: true, settle: settles,
		},
		{
			Contestant: rig.Contestant{
				Name: "etcd", Service: "etcd", Note: "client/v3/concurrency; one server, file, synced before it is acknowledged",
			},
			settings: settings{TTL: lockTTL}, open: openEtcd,
			settle: 150 * time.Millisecond, // it begins to feed a new watcher after up to 100
		},
	}
}

// starters start what they run on.
var starters = map[string]rig.Starter{
	"nats":                      rig.StartNATS(1, false),
	"nats cluster":              rig.StartNATS(3, false),
	"nats cluster, sync always": rig.StartNATS(3, true),
	"redis":                     rig.StartRedis("--appendonly", "no"),
	"etcd":                      rig.StartEtcd,
}

// contestant is one library on one kind of server.
type contestant struct {
	rig.Contestant

	settings settings
	prepare  func(ctx context.Context, s settings) error // once, before the first client
	open     func(ctx context.Context, s settings) (*client, error)
	polls    bool          // waiters ask again and again
	settle   time.Duration // how long a waiter needs until it waits
}

// settings are what a client needs to know, here and in a process of its own.
type settings struct {
	Address string
	Bucket  string
	TTL     time.Duration // of locks and claims
}

// client is what one process has of a contestant, with connections of its own. What it does not offer is nil.
type client struct {
	// lock waits for the lock. unlock gives it back.
	lock func(ctx context.Context, name string) (unlock func(context.Context) error, err error)

	// do returns the value of key: cached, computed, or awaited from the client that computes it.
	do func(ctx context.Context, key string, compute func(context.Context) ([]byte, error)) ([]byte, error)

	// wait waits for the value of a key that somebody computes, where that is not what do does.
	wait func(ctx context.Context, key string) error

	// store makes value what the reads find.
	store func(ctx context.Context, key string, value []byte) error

	// read asks the server; hit finds the key in this process, after the first time.
	read, hit func(ctx context.Context, key string) ([]byte, error)

	// readMany asks for all keys at once, as well as it can, and returns how many were found.
	readMany func(ctx context.Context, keys []string) (int, error)

	// subscriptions is how many the server keeps for this client.
	subscriptions func() int

	trips *trips // over all its connections
	close func()
}

// lockTTL is what all locks and claims are taken for, but in the rows that wait for its end.
const lockTTL = 10 * time.Second

// crashTTL is the TTL where a holder dies: the shortest that all contestants take.
const crashTTL = 2 * time.Second
