// Package retry repeats a call to a service a few times, with pauses that grow.
package retry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/pause"
)

const (
	// jitter is the share by which a pause may be longer or shorter.
	jitter = 0.2

	// minPause is the shortest pause.
	minPause = 100 * time.Millisecond

	// MaxAfter is the longest pause within an attempt: a service that wants a longer one is not called again.
	MaxAfter = time.Minute

	// maxRetries bounds the repetitions, and maxBase the first pause.
	maxRetries, maxBase = 20, time.Minute
)

// Policy is the number of repetitions of a call, and their pauses.
type Policy struct {
	// Base is the pause before the first repetition; each further one is twice as long, ±20 %.
	Base time.Duration

	// Retries is the largest number of repetitions.
	Retries int
}

// UnmarshalText reads the repetitions and the first pause, as in "3,500ms".
func (p *Policy) UnmarshalText(text []byte) error {
	retries, base, found := strings.Cut(string(text), ",")
	n, err := strconv.Atoi(strings.TrimSpace(retries))
	if err != nil || !found {
		return fmt.Errorf("%.64q is no policy: want repetitions and the first pause, such as 3,500ms", text)
	}
	first, err := time.ParseDuration(strings.TrimSpace(base))
	if err != nil {
		return fmt.Errorf("%.64q is no policy: %w", text, err)
	}
	*p = Policy{Base: first, Retries: n}
	return p.Validate()
}

// Validate reports the first field that is out of its bounds.
func (p Policy) Validate() error {
	if p.Retries < 0 || p.Retries > maxRetries {
		return fmt.Errorf("%d repetitions: want 0 to %d", p.Retries, maxRetries)
	}
	if p.Base < minPause || p.Base > maxBase {
		return fmt.Errorf("the first pause is %s: want %s to %s", p.Base, minPause, maxBase)
	}
	return nil
}

// Pause returns the pause after a failed attempt, counted from 0.
func (p Policy) Pause(attempt int) time.Duration {
	delay := float64(p.Base) * float64(uint64(1)<<min(attempt, 30))
	spread := delay * jitter * (rand.Float64()*2 - 1) //nolint:gosec // spreads load, guards nothing
	return max(minPause, time.Duration(delay+spread))
}

// Verdict reports whether and when to try again after an error.
type Verdict struct {
	// Again reports whether another attempt may succeed.
	Again bool

	// After is the least pause, if the service has asked for one. Defaults to none.
	After time.Duration
}

// Do calls f until it succeeds, judge rules out another attempt or asks for a pause of more than MaxAfter, or the repetitions are
// used up. It returns the last error. When ctx ends in a pause, its cause is returned. onRetry is called before each pause.
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
		if !verdict.Again || attempt == p.Retries || verdict.After > MaxAfter {
			return err
		}
		wait := max(p.Pause(attempt), verdict.After)
		onRetry(attempt+1, wait, err)
		if !pause.For(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}
