// Package probe lets a test stop or kill a relay at a point of its work.
package probe

import (
	"context"
	"time"
)

// The points that a relay passes, in order. Its process may die between any two of them.
const (
	Claimed      = "claimed"      // lanes are locked
	Acknowledged = "acknowledged" // some rows are in the stream, none is deleted
	Marked       = "marked"       // rows are deleted, the transaction is not committed
	Committed    = "committed"    // the transaction is committed
)

// Probe changes a relay for a test.
type Probe struct {
	// AnswerTimeout bounds an answer of the database. Defaults to the relay's own bound.
	AnswerTimeout time.Duration

	// Passed is called at each point. Defaults to nothing.
	Passed func(point string)
}

type key struct{}

// With returns a context for outbox.New. The relay then has the probe.
func With(ctx context.Context, p Probe) context.Context { return context.WithValue(ctx, key{}, p) }

// From returns the probe of a context, the zero value when there is none.
func From(ctx context.Context) Probe {
	p, _ := ctx.Value(key{}).(Probe)
	return p
}
