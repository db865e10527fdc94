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
func Jitter(ctx context.Context, d time.Duration) bool { return Sleep(ctx, Spread(d, 0.5)) }

// Spread returns d, made longer or shorter at random by up to a share of it.
func Spread(d time.Duration, share float64) time.Duration {
	return d + time.Duration(float64(d)*share*(2*rand.Float64()-1))
}

// Backoff waits before attempt n+2, counted from the first: for about the time that Wait returns, ±50 %. It reports whether ctx
// still runs.
func Backoff(ctx context.Context, n int, least, most time.Duration) bool {
	return Jitter(ctx, Wait(n, least, most))
}

// Wait returns the wait after the failed attempt n, counted from 0: least, doubled n times, but at most most.
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
