package step

import (
	"context"

	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

// Memory keeps the steps of one job in this process, so that a test can call a handler
// without a server. Make it with [NewMemory].
type Memory struct {
	memory *journal.Memory
}

// NewMemory returns a journal without steps.
func NewMemory() *Memory { return &Memory{memory: journal.NewMemory()} }

// Attempt returns the context for the next attempt at the job. Its steps get the results that earlier attempts recorded.
// Like the context of a worker it ends when a step of this attempt notices that a later attempt has taken over.
func (m *Memory) Attempt(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	return journal.With(ctx, m.memory.Open(ctx, cancel))
}
