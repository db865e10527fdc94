// Command scale measures the costs of the parts of a deployment: messages and reads by the number of streams that they are spread
// over, and idle streams and consumers.
//
//	go -C bench run ./scale [--rounds N] [--scale X] [--short] [--only REGEXP] [--write FILE] [--json]
//
// It uses nats.go alone, so the figures are those of the server, and a lower bound of the costs of everything built on it.
package main

import (
	"context"
	"io"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

func main() {
	rig.Main("scale", nil, measure)
}

// timeout bounds one row of one contestant.
const timeout = 2 * time.Minute

// contestant is one kind of server.
type contestant struct {
	rig.Contestant

	replicas int
	weight   float64 // the factor of the number of operations: a contestant that syncs each message gets fewer
}

func field() []contestant {
	return []contestant{
		{rig.Contestant{Name: "r1", Service: "nats", Class: "synced every second", Note: "one server"}, 1, 1},
		{rig.Contestant{Name: "r1_sync_always", Service: "nats, sync always", Class: "synced before the answer", Note: "one server"}, 1, 0.2},
		{rig.Contestant{Name: "r3", Service: "nats cluster", Class: "on 2 of 3, synced every second", Note: "three servers"}, 3, 0.5},
		{
			rig.Contestant{
				Name: "r3_sync_always", Service: "nats cluster, sync always", Class: "on 2 of 3, synced before the answer", Note: "three servers",
			}, 3, 0.2,
		},
	}
}

func measure(ctx context.Context, out io.Writer, o rig.Options) (any, error) {
	return rig.Trial[contestant]{
		What: "The parts of a deployment, by nats.go alone,", Field: field(), Rows: rows(o.Scale), Limit: timeout, Derive: derive,
		More: []rig.Table{{
			Title:   "Cores of all servers together, and streams, for so many jobs a second: each stream has half of the jobs that one had here",
			Columns: sizes(),
		}},
	}.Run(ctx, out, o)
}

func rows(scale float64) []rig.Row[contestant] {
	all := func(contestant) bool { return true }
	run := func(of func(context.Context, *bench) (rig.Figures, error)) func(context.Context, contestant, *rig.Service) (rig.Figures, error) {
		return func(ctx context.Context, who contestant, on *rig.Service) (rig.Figures, error) {
			b, err := newBench(who, on, scale)
			if err != nil {
				return nil, err
			}
			defer b.close(ctx)
			return of(ctx, b)
		}
	}
	return []rig.Row[contestant]{
		{
			Name: "publish", Title: "Messages of 300 bytes by 64 publishers, each of which waits for the answer, over so many streams",
			Needs: all, Run: run(publish), Columns: spread("publish", streams),
		},
		{
			Name: "read", Title: "Direct reads of the last message of a subject by 64 readers, over so many streams",
			Needs: all, Run: run(read), Columns: spread("read", streams),
		},
		{
			Name: "jobs", Title: "The same messages, each taken by a consumer of its stream that has its acknowledgement confirmed",
			Needs: all, Run: run(jobs), Columns: spread("jobs", streams),
		},
		{
			Name: "streams", Title: "Idle streams", Needs: all, Run: run(idleStreams), Once: true, Columns: idle("stream"),
		},
		{
			Name: "consumers", Title: "Idle pull consumers of one stream", Needs: all, Run: run(idleConsumers), Once: true, Columns: idle("consumer"),
		},
	}
}
