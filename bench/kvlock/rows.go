package main

import (
	"context"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// row is one thing that is measured.
type row struct {
	name    string
	title   string
	needs   func(*client) bool
	run     func(context.Context, *bench) (rig.Figures, error)
	once    bool // in the first round only: it is no matter of luck, or takes long
	columns []rig.Column
}

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

func memory(name string) []rig.Column {
	return []rig.Column{
		{Figure: name + "_mb", Title: "MB for them", Format: "%.0f"},
		{Figure: name + "_process_mb", Title: "their process", Format: "%.0f"},
		{Figure: name + "_server_mb", Title: "server's part", Format: "%.0f"},
		{Figure: name + "_subscriptions", Title: "subscriptions", Format: "%.0f"},
	}
}

func locks(c *client) bool     { return c.lock != nil }
func computes(c *client) bool  { return c.do != nil }
func remembers(c *client) bool { return c.hit != nil }
func reads(c *client) bool     { return c.read != nil }
func batches(c *client) bool   { return c.readMany != nil }

// rows is everything that is measured, in the order of the tables.
func rows() []row {
	return []row{
		{
			name: "lock_unlock", title: "Lock and unlock, uncontended", needs: locks, run: lockUnlock,
			columns: rig.Columns(quantiles("lock_unlock", "us", "µs"), processor("lock_unlock")),
		},
		{
			name: "wake", title: "Wake after release: from before unlock until the one who waited has the lock", needs: locks, run: wake,
			columns: quantiles("wake", "us", "µs"),
		},
		{
			name: "wakelong", title: "Wake after a long wait: the same when it was waited for 300 ms", needs: locks, run: wakeLong,
			columns: quantiles("wake_long", "us", "µs"),
		},
		{
			name: "handover", title: "Hand-over among 32 clients, each of which holds it for 1 ms", needs: locks, run: handover,
			columns: rig.Columns(quantiles("handover", "us", "µs"), []rig.Column{
				{Figure: "handover_per_s", Title: "turns/s", Format: "%.0f"},
				{Figure: "handover_same_percent", Title: "to itself %", Format: "%.0f"},
				{Figure: "handover_min", Title: "fewest", Format: "%.0f"},
				{Figure: "handover_max", Title: "most", Format: "%.0f"},
				{Figure: "fairness", Title: "fewest/most", Format: "%.2f", Spread: true},
			}, processor("handover")),
		},
		{
			name: "coalesce", title: "Coalesced wake: from the end of the computation until each of 8 waiting clients has the value",
			needs: computes, run: coalesce,
			columns: rig.Columns(quantiles("coalesce", "us", "µs"), processor("coalesce")),
		},
		{
			name: "hit", title: "Cached read, memory tier", needs: remembers, run: memoryRead,
			columns: []rig.Column{{Figure: "memory_hit_ns", Title: "p50 ns", Format: "%.0f", Spread: true}},
		},
		{
			name: "read", title: "Cached read over the network, 300 bytes", needs: reads, run: networkRead,
			columns: rig.Columns(quantiles("read", "us", "µs"), processor("read")),
		},
		{
			name: "batch10", title: "Batched read of 10 keys", needs: batches, run: batchRead(10),
			columns: rig.Columns(quantiles("batch10", "us", "µs"), []rig.Column{{Figure: "batch10_round_trips", Title: "round trips", Format: "%.0f"}}, processor("batch10")),
		},
		{
			name: "batch100", title: "Batched read of 100 keys", needs: batches, run: batchRead(100),
			columns: rig.Columns(quantiles("batch100", "us", "µs"), []rig.Column{{Figure: "batch100_round_trips", Title: "round trips", Format: "%.0f"}}, processor("batch100")),
		},
		{
			name: "takeover", title: "Take-over of a computation after kill -9 of its process", needs: computes, run: takeover,
			columns: []rig.Column{{Figure: "takeover_kill9_ms", Title: "ms", Format: "%.1f", Spread: true}},
		},
		{
			name: "lock_takeover", title: "Take-over of a lock after kill -9 of its process, TTL 2 s: nobody may be sooner than its deadline",
			needs: locks, run: lockTakeover,
			columns: []rig.Column{{Figure: "lock_takeover_kill9_ms", Title: "ms", Format: "%.0f", Spread: true}},
		},
		{
			name: "waiters", title: "10,000 waiters in one process, each for a key of its own: Wait, Get, Lock", once: true,
			needs: func(c *client) bool { return c.do != nil || c.lock != nil }, run: waiters("waiters_10k", "wait", 10_000),
			columns: memory("waiters_10k"),
		},
		{
			name: "callers", title: "10,000 callers in one process of one computation elsewhere: Do, Get", once: true,
			needs: computes, run: waiters("callers_10k_one_key", "do", 1), columns: memory("callers_10k_one_key"),
		},
		{
			name: "callers", title: "10,000 callers in one process, each of a computation of its own elsewhere: Do, Get", once: true,
			needs: computes, run: waiters("callers_10k", "do", 10_000), columns: memory("callers_10k"),
		},
	}
}

// targets are what is aimed at, on one server.
func targets() (all []rig.Target) {
	for _, on := range []string{"r1", "r1_file"} {
		all = append(all,
			rig.Target{On: on, Figure: "lock_unlock_p50_us", Kind: rig.AtMost, Goal: 200},
			rig.Target{On: on, Figure: "wake_p50_us", Kind: rig.AtMost, Goal: 600},
			rig.Target{On: on, Figure: "wake_p99_us", Kind: rig.AtMost, Goal: 2000},
			rig.Target{On: on, Figure: "fairness", Kind: rig.AtLeast, Goal: 0.95},
			rig.Target{On: on, Figure: "takeover_kill9_ms", Kind: rig.AtMost, Goal: 50},
			rig.Target{On: on, Figure: "memory_hit_ns", Kind: rig.AtMost, Goal: 500},
			rig.Target{On: on, Figure: "batch10_round_trips", Kind: rig.AtMost, Goal: 1},
			rig.Target{On: on, Figure: "waiters_10k_mb", Kind: rig.AtMost, Goal: 60},
			rig.Target{On: on, Figure: "waiters_10k_subscriptions", Kind: rig.AtMost, Goal: 1},
		)
	}
	return all
}
