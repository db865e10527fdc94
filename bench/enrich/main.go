// Command enrich measures the enricher over TCP on the loopback: how long it takes to answer requests whose places are
// all known (hit), and requests of places that nobody has asked for before (miss).
//
//	go -C bench run ./enrich [--rounds N] [--scale X] [--only REGEXP] [--memory BYTES] [--json]
//
// Every round starts a NATS server, an enricher and its clients in this process, connected by TCP sockets, and runs
// every case once. A figure is the median of the rounds, with the least and the greatest of them beside it.
//
// One client asks one request after the other and lets the enricher finish its jobs in between, outside the time that
// is measured; 16 clients ask without a pause. The CPU time of a request is what the whole process spent: client,
// enricher, NATS server and, for a miss, the jobs. Places that are missed have ids never used before, and the provider
// answers at once with the one venue that matches. The 99th percentile of fewer than a hundred requests is their
// slowest.
package main

import (
	"context"
	"flag"
	"io"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

func main() {
	o := options{}
	register := func(flags *flag.FlagSet) {
		flags.Int64Var(&o.memory, "memory", 0, "keep results in `BYTES` of the enricher's memory; 0 is its default, -1 keeps none")
	}
	rig.Main("enrich", register, func(ctx context.Context, out io.Writer, shared rig.Options) (any, error) {
		o.Options = shared
		return measure(ctx, out, o)
	})
}

type options struct {
	rig.Options

	memory int64
}
