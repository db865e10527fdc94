package journal

import "context"

type contextKey struct{}

// With returns a context that carries a journal.
func With(ctx context.Context, j *Journal) context.Context {
	return context.WithValue(ctx, contextKey{}, j)
}

// From returns the journal that a context carries, or nil.
func From(ctx context.Context) *Journal {
	found, _ := ctx.Value(contextKey{}).(*Journal)
	return found
}

// Sequence is the position of the job's message in its stream, 0 for a journal in memory.
func (j *Journal) Sequence() uint64 { return j.attempt.Sequence }
