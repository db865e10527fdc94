// Command jobs measures pkg/worker side by side with its peers, over TCP on the loopback: unique no-op jobs inserted and
// worked to completion as the system itself records it, the time from insert to start at 200 jobs a second, five durable
// steps, the restart of a job after a kill -9 of its worker, and a queue that grows a hundredfold.
//
//	go -C bench run ./jobs [--rounds N] [--scale X] [--short] [--queued N] [--only REGEXP] [--json]
//
// Every server is a process of its own, so that its CPU time is counted apart: NATS (one server, one that syncs before
// every acknowledgement, and three of those), and redis-server and postgres where they are installed. What is missing is
// named and skipped; README.md beside this folder says how to install it.
//
// In each round every row is run by every contestant before the next row begins, and every other round goes through the
// contestants backwards. A figure is the median of the rounds, with the least and the greatest of them beside it.
package main

import (
	"context"
	"flag"
	"io"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

func main() {
	rig.NodeMain()
	childMain()
	o := options{}
	register := func(flags *flag.FlagSet) {
		flags.BoolVar(&o.slow, "slow", false, "wait for the job of a dead worker also where that takes minutes (asynq)")
		flags.IntVar(&o.listed, "listed", 1_000_000, "of how many `JOBS` pages are listed")
		flags.IntVar(&o.queued, "queued", 200_000, "how many `JOBS` the queue grows to, from a hundredth of that")
	}
	rig.Main("jobs", register, func(ctx context.Context, out io.Writer, shared rig.Options) (any, error) {
		o.Options = shared
		return measure(ctx, out, o)
	})
}

type options struct {
	rig.Options

	listed int
	queued int
	slow   bool
}
