// Package backoff waits between two attempts.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d. It reports whether ctx still runs.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Pause waits for about d, ±50 %, so that callers that failed together do not try again together. It reports whether ctx
// still runs.
func Pause(ctx context.Context, d time.Duration) bool {
	return Sleep(ctx, d/2+rand.N(d)) //nolint:gosec // spreads retries, guards nothing
}
