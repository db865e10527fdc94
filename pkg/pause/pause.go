// Package pause waits, but not beyond the end of a context.
package pause

import (
	"context"
	"time"
)

// For waits for d. It reports whether ctx still runs.
func For(ctx context.Context, d time.Duration) bool {
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
