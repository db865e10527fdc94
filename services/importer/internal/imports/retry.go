package imports

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

	// maxAfter is the longest pause within an attempt: a service that wants a longer one is not called again.
	maxAfter = time.Minute

	// maxRetries bounds the repetitions, and maxBase the first pause.
	maxRetries, maxBase = 20, time.Minute
)

// RetryPolicy is the number of repetitions of a call, and their pauses.
type RetryPolicy struct {
	// Base is the pause before the first repetition; each further one is twice as long, ±20 %.
	Base time.Duration

	// Retries is the largest number of repetitions.
	Retries int
}

// UnmarshalText reads the repetitions and the first pause, as in "3,500ms".
func (p *RetryPolicy) UnmarshalText(text []byte) error {
	retries, base, found := strings.Cut(string(text), ",")
	n, err := strconv.Atoi(strings.TrimSpace(retries))
	if err != nil || !found {
		return fmt.Errorf("%.64q is no policy: want repetitions and the first pause, such as 3,500ms", text)
	}
	first, err := time.ParseDuration(strings.TrimSpace(base))
	if err != nil {
		return fmt.Errorf("%.64q is no policy: %w", text, err)
	}
	*p = RetryPolicy{Base: first, Retries: n}
	return p.Validate()
}

// Validate reports the first field that is out of its bounds.
func (p RetryPolicy) Validate() error {
	if p.Retries < 0 || p.Retries > maxRetries {
		return fmt.Errorf("%d repetitions: want 0 to %d", p.Retries, maxRetries)
	}
	if p.Base < minPause || p.Base > maxBase {
		return fmt.Errorf("the first pause is %s: want %s to %s", p.Base, minPause, maxBase)
	}
	return nil
}

// Pause returns the pause after a failed attempt, counted from 0.
func (p RetryPolicy) Pause(attempt int) time.Duration {
	delay := float64(p.Base) * float64(uint64(1)<<min(attempt, 30))
	spread := delay * jitter * (rand.Float64()*2 - 1) //nolint:gosec // spreads load, guards nothing
	return max(minPause, time.Duration(delay+spread))
}

// verdict reports whether and when to try again after an error.
type verdict struct {
	// Again reports whether another attempt may succeed.
	Again bool

	// After is the least pause, if the service has asked for one. Defaults to none.
	After time.Duration
}

// Do calls f until it succeeds, judge rules out another attempt or asks for a pause of more than maxAfter, or the repetitions are
// used up. It returns the last error. When ctx ends in a pause, its cause is returned. onRetry is called before each pause.
func (p RetryPolicy) Do(
	ctx context.Context, f func(context.Context) error, judge func(error) verdict, onRetry func(attempt int, pause time.Duration, err error),
) error {
	for attempt := 0; ; attempt++ {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v := judge(err)
		if !v.Again || attempt == p.Retries || v.After > maxAfter {
			return err
		}
		wait := max(p.Pause(attempt), v.After)
		onRetry(attempt+1, wait, err)
		if !pause.For(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}
