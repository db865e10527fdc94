// Package retry waits between attempts, but not beyond the end of a context, and reads the wait that a server asks for.
package retry

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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Jitter waits for about d, ±50 %, so that callers that failed together do not try again together. It reports whether ctx
// still runs.
func Jitter(ctx context.Context, d time.Duration) bool { return Sleep(ctx, d/2+rand.N(d)) }

// Wait returns the wait after n failures: least, doubled n times, but at most most. It has no jitter.
func Wait(n int, least, most time.Duration) time.Duration {
	for ; n > 0 && least < most; n-- {
		least += min(least, most-least) // no sum overflows
	}
	return min(least, most)
}

// Every calls do after each d, until ctx ends. A call that takes longer than d delays the next call; the calls in between are left out.
func Every(ctx context.Context, d time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			do(ctx)
		case <-ctx.Done():
			return
		}
	}
}
