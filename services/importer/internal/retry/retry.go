// Package retry repeats a call to a service a few times, with pauses that grow.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// jitter is the share by which a pause is longer or shorter.
	jitter = 0.2

	// minPause is the shortest pause.
	minPause = 100 * time.Millisecond

	// MaxAfter bounds the pause that a service can ask for.
	MaxAfter = time.Minute
)

// Policy is how often a call is made, and after which pauses.
type Policy struct {
	// Base is the pause before the first repetition; each further one is twice as long, ±20 %.
	Base time.Duration

	// Retries is how many repetitions there are at most.
	Retries int
}

// Pause is the pause after a failed attempt, counted from 0.
func (p Policy) Pause(attempt int) time.Duration {
	delay := float64(p.Base) * float64(uint64(1)<<min(attempt, 30))
	spread := delay * jitter * (rand.Float64()*2 - 1) //nolint:gosec // spreads load, guards nothing
	return max(minPause, time.Duration(delay+spread))
}

// Verdict is what is to be done about an error.
type Verdict struct {
	// Again reports whether another attempt may succeed.
	Again bool

	// After is the least pause, if the service has asked for one. Defaults to none.
	After time.Duration
}

// Do calls f until it succeeds, judge has no hope, or the repetitions are used up, and returns the last error. When ctx ends
// in a pause, its cause is returned. onRetry is called before each pause.
func (p Policy) Do(
	ctx context.Context, f func(context.Context) error, judge func(error) Verdict, onRetry func(attempt int, pause time.Duration, err error),
) error {
	for attempt := 0; ; attempt++ {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		verdict := judge(err)
		if !verdict.Again || attempt == p.Retries {
			return err
		}
		pause := max(p.Pause(attempt), min(verdict.After, MaxAfter))
		onRetry(attempt+1, pause, err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
