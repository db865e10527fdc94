// Package backoff waits between two attempts.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/expediter-io/expediter/pkg/pause"
)

// Sleep waits for d. It reports whether ctx still runs.
func Sleep(ctx context.Context, d time.Duration) bool { return pause.For(ctx, d) }

// Pause waits for about d, ±50 %, so that callers that failed together do not try again together. It reports whether ctx
// still runs.
func Pause(ctx context.Context, d time.Duration) bool {
	return Sleep(ctx, d/2+rand.N(d))
}
