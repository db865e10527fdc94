package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/kvlock"
)

// settles is the time that a client needs until it waits for a push.
const settles = 20 * time.Millisecond

// field returns the contestants, in the order of the tables.
func field() []contestant {
	theirs := func(
		name, service, note string, settle time.Duration, open func(context.Context, settings) (*client, error),
	) contestant {
		return contestant{
			Contestant: rig.Contestant{Name: name, Service: service, Note: note}, settings: settings{TTL: lockTTL},
			open: open, settle: settle,
		}
	}
	ours := func(name, service, note string, cfg kvlock.BucketConfig) contestant {
		who := theirs(name, service, note, settles, openOurs)
		who.Raw, who.settings.Bucket, who.prepare = "raw_"+name, name, prepareOurs(cfg)
		return who
	}
	raw := func(name, service, note string, cfg kvlock.BucketConfig) contestant {
		who := ours(name, service, note, cfg)
		who.open, who.alone = openRaw, true
		return who
	}
	inMemory, replicated := kvlock.BucketConfig{Storage: jetstream.MemoryStorage}, kvlock.BucketConfig{Replicas: 3}
	return []contestant{
		ours("r1", "nats", "one server, memory", inMemory),
		raw("raw_r1", "nats", "nats.go alone, one server, memory: two conditional writes, one request", inMemory),
		ours("r1_file", "nats", "one server, file, sync every second", kvlock.BucketConfig{}),
		ours("r3", "nats cluster", "three servers, file, sync every second", replicated),
		raw("raw_r3", "nats cluster", "nats.go alone, three servers: the same", replicated),
		ours("r3_sync_always", "nats cluster, sync always", "three servers, file, synced before it is acknowledged", replicated),
		theirs("rueidis", "redis", "rueidislock, rueidisaside; one server, memory, no persistence", settles, openRueidis),
		theirs("redsync", "redis", "as it comes: asks every 50 to 250 ms; one server, memory, no persistence",
			redsyncRetry*3/2, openRedsync),
		theirs("etcd", "etcd", "client/v3/concurrency; one server, file, synced before it is acknowledged",
			150*time.Millisecond, openEtcd), // etcd begins to feed a new watcher after up to 100
	}
}

// contestant is one library on one kind of server.
type contestant struct {
	rig.Contestant

	settings settings
	prepare  func(ctx context.Context, s settings) error // called once, before the first client
	open     func(ctx context.Context, s settings) (*client, error)
	alone    bool          // no client can wait for its locks
	settle   time.Duration // the time that a waiter needs until it waits
}

// settings are the settings of a client, in this process or a separate one.
type settings struct {
	Address string
	Bucket  string
	TTL     time.Duration // of locks and claims
}

// client has the operations of a contestant in one process, with separate connections. Operations that it does not offer are nil.
type client struct {
	// lock waits for the lock. unlock gives it back.
	lock func(ctx context.Context, name string) (unlock func(context.Context) error, err error)

	// do returns the value of key: cached, computed, or awaited from the client that computes it.
	do func(ctx context.Context, key string, compute func(context.Context) ([]byte, error)) ([]byte, error)

	// store stores the value of a key.
	store func(ctx context.Context, key string, value []byte) error

	// read asks the server; hit finds the key in this process, after the first time.
	read, hit func(ctx context.Context, key string) ([]byte, error)

	// readMany asks for all keys at once, as well as it can, and returns the number of keys found.
	readMany func(ctx context.Context, keys []string) (int, error)

	// subscriptions returns the number of subscriptions that the server keeps for this client.
	subscriptions func() int

	trips *trips // over all its connections
	close func()
}

// lockTTL is the TTL of all locks and claims, except in the rows that wait for its end.
const lockTTL = 10 * time.Second

// crashTTL is the TTL where a holder dies: the shortest that all contestants take.
const crashTTL = 2 * time.Second

func quantiles(name, unit, symbol string) []rig.Column {
	return []rig.Column{
		{Figure: name + "_p50_" + unit, Title: "p50 " + symbol, Format: "%.0f", Spread: true},
		{Figure: name + "_p99_" + unit, Title: "p99 " + symbol, Format: "%.0f", Spread: true},
	}
}

func processor(name string) []rig.Column {
	return []rig.Column{
		{Figure: name + "_client_cpu_us", Title: "CPU µs", Format: "%.0f"},
		{Figure: name + "_server_cpu_us", Title: "server's", Format: "%.0f"},
	}
}

// memory has the columns of callers.
var memory = []rig.Column{
	{Figure: "callers_10k_mb", Title: "MB for them", Format: "%.0f"},
	{Figure: "callers_10k_process_mb", Title: "their process", Format: "%.0f"},
	{Figure: "callers_10k_server_mb", Title: "server's part", Format: "%.0f"},
	{Figure: "callers_10k_subscriptions", Title: "subscriptions", Format: "%.0f"},
}

func writes(who contestant) bool    { return offers[who.Name].lock != nil }
func locks(who contestant) bool     { return writes(who) && !who.alone }
func computes(who contestant) bool  { return offers[who.Name].do != nil }
func remembers(who contestant) bool { return offers[who.Name].hit != nil }
func reads(who contestant) bool     { return offers[who.Name].read != nil }
func batches(who contestant) bool   { return offers[who.Name].readMany != nil }

// rows returns all measurements, in the order of the tables.
func rows(o options) []rig.Row[contestant] {
	run := func(of measured) ran {
		return func(ctx context.Context, who contestant, on *rig.Service) (rig.Figures, error) {
			b := &bench{contestant: who, service: on, settings: who.settings, keys: o.keys, scale: o.Scale}
			b.settings.Address = on.Address
			defer b.close()
			return of(ctx, b)
		}
	}
	return []rig.Row[contestant]{
		{
			Name: "lock_unlock", Title: "Lock and unlock, uncontended", Needs: writes, Run: run(lockUnlock),
			Columns: slices.Concat(quantiles("lock_unlock", "us", "µs"), over("lock_over_raw"), processor("lock_unlock")),
		},
		{
			Name: "wake", Title: "Wake after release: from before unlock until the one who waited has the lock", Needs: locks, Run: run(wake),
			Columns: quantiles("wake", "us", "µs"),
		},
		{
			Name: "handover", Title: "Hand-over among 32 clients, each of which holds it for 1 ms", Needs: locks, Run: run(handover),
			Columns: slices.Concat(quantiles("handover", "us", "µs"), []rig.Column{
				{Figure: "handover_per_s", Title: "turns/s", Format: "%.0f"},
				{Figure: "handover_same_percent", Title: "to itself %", Format: "%.0f"},
				{Figure: "handover_min", Title: "fewest", Format: "%.0f"},
				{Figure: "handover_max", Title: "most", Format: "%.0f"},
				{Figure: "fairness", Title: "fewest/most", Format: "%.2f", Spread: true},
			}, processor("handover")),
		},
		{
			Name: "coalesce", Title: "Coalesced wake: from the end of the computation until each of 8 waiting clients has the value",
			Needs: computes, Run: run(coalesce),
			Columns: slices.Concat(quantiles("coalesce", "us", "µs"), processor("coalesce")),
		},
		{
			Name: "hit", Title: "Cached read, memory tier", Needs: remembers, Run: run(memoryRead),
			Columns: []rig.Column{{Figure: "memory_hit_ns", Title: "p50 ns", Format: "%.0f", Spread: true}},
		},
		{
			Name: "read", Title: "Cached read over the network, 300 bytes", Needs: reads, Run: run(networkRead),
			Columns: slices.Concat(quantiles("read", "us", "µs"), processor("read")),
		},
		batch("batch10", 10, run), batch("batch100", 100, run),
		{
			Name: "takeover", Title: "Take-over of a computation after kill -9 of its process", Needs: computes, Run: run(takeover),
			Columns: []rig.Column{{Figure: "takeover_kill9_ms", Title: "ms", Format: "%.1f", Spread: true}},
		},
		{
			Name: "lock_takeover", Title: "Take-over of a lock after kill -9 of its process, TTL 2 s: nobody may be sooner than its deadline",
			Needs: locks, Run: run(lockTakeover),
			Columns: []rig.Column{{Figure: "lock_takeover_kill9_ms", Title: "ms", Format: "%.0f", Spread: true}},
		},
		{
			Name: "callers", Title: "10,000 callers in one process, each of which would compute a key that another process computes", Once: true,
			Needs: computes, Run: run(callers),
			Columns: memory,
		},
		{
			Name: "growth", Once: true,
			Title: fmt.Sprintf("Lock and unlock, and a read over the network, with %d, %d and %d other keys in the bucket", o.keys/100, o.keys/10, o.keys),
			Needs: func(who contestant) bool { return locks(who) && reads(who) }, Run: run(growth),
			Columns: slices.Concat(lockAmongKeys.Columns("lock"), readAmongKeys.Columns("read"), lockAmongKeys.Memory()),
		},
	}
}

func over(figure string) []rig.Column {
	return []rig.Column{{Figure: figure, Title: "of raw", Format: "%.2f", Spread: true}}
}

// batch returns the row of a number of keys that are read at once.
func batch(name string, keys int, run func(measured) ran) rig.Row[contestant] {
	trips := []rig.Column{{Figure: name + "_round_trips", Title: "round trips", Format: "%.0f"}}
	return rig.Row[contestant]{
		Name: name, Title: fmt.Sprintf("Batched read of %d keys", keys), Needs: batches, Run: run(batchRead(name, keys)),
		Columns: slices.Concat(quantiles(name, "us", "µs"), over(name+"_over_raw"), trips, processor(name)),
	}
}

// measured runs a row; ran runs it for a contestant that takes part.
type (
	measured = func(context.Context, *bench) (rig.Figures, error)
	ran      = func(context.Context, contestant, *rig.Service) (rig.Figures, error)
)
