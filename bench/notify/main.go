// Command notify measures how an event becomes rows and messages in services/notifier, side by side with rows that are
// stored one at a time: an event to 10, 1,000, 10,000 and 100,000 recipients, from its publication until all rows are
// stored, and until all are in the inboxes. It measures as well what a row costs clients and servers, how much memory the
// notifier has, and how both grow with the audience.
//
//	go -C bench run ./notify [--rounds N] [--scale X] [--short] [--audience N] [--only REGEXP] [--json]
//
// The notifier and every server are processes of their own. After each row everything is counted: each recipient has to
// have one row, one entry in the ledger with one attempt, and one message. What is otherwise ends the program with 1.
//
// In each round every row is run by every contestant before the next row begins, and every other round goes through the
// contestants backwards. A figure is the median of the rounds, with the least and the greatest of them beside it. The
// largest audience is told in the first round only.
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
		flags.IntVar(&o.audience, "audience", 100_000, "leave out events to more than `N` recipients")
		flags.StringVar(&o.profile, "profile", "", "write a CPU profile and a heap profile of each notifier to `FOLDER`")
	}
	rig.Main("notify", register, func(ctx context.Context, out io.Writer, shared rig.Options) (any, error) {
		o.Options = shared
		return measure(ctx, out, o)
	})
}

type options struct {
	rig.Options

	audience int
	profile  string
}
