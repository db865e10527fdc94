// Package backoff waits between two attempts.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pause waits about d, ±50 %, so that callers that failed together do not try again together. It reports whether ctx
// still runs.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + rand.N(d)) //nolint:gosec // spreads retries, guards nothing
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
