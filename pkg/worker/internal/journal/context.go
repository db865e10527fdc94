package journal

import "context"

type contextKey struct{}

// With returns a context that carries a journal.
func With(ctx context.Context, j *Journal) context.Context {
	return context.WithValue(ctx, contextKey{}, j)
}

// WithEach returns a context that carries the journals of several jobs, by their sequences.
func WithEach(ctx context.Context, all map[uint64]*Journal) context.Context {
	return context.WithValue(ctx, contextKey{}, all)
}

// From returns the journal that a context carries, of several the one with the sequence, or
// nil.
func From(ctx context.Context, sequence uint64) *Journal {
	switch found := ctx.Value(contextKey{}).(type) {
	case *Journal:
		return found
	case map[uint64]*Journal:
		return found[sequence]
	default:
		return nil
	}
}

// Sequence is the position of the job's message in its stream, 0 for a journal in memory.
func (j *Journal) Sequence() uint64 { return j.attempt.Sequence }
