package wolt

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/expediter-io/expediter/services/enricher/provider"
)

// turnPause is when to come back after no turn was to be had.
const turnPause = 5 * time.Second

// guard decides whether a call is made at all: not while Wolt has asked for a pause, and not while it keeps failing.
type guard struct {
	breaker *gobreaker.CircuitBreaker[struct{}]

	mu     sync.Mutex
	closes time.Time // when the open breaker lets a call through again
}

func newGuard(config Config) *guard {
	g := &guard{}
	g.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		IsExcluded: spared,
		Name:       Name,
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				g.mu.Lock()
				g.closes = time.Now().Add(breakerPause)
				g.mu.Unlock()
			}

			config.Logger.Warn("circuit breaker of the provider changed",
				slog.String("provider", Name), slog.String("from", from.String()), slog.String("to", to.String()))
		},
		ReadyToTrip: func(counts gobreaker.Counts) bool {
			return counts.ConsecutiveFailures >= breakerFailures
		},
		Timeout: breakerPause,
	})
	return g
}

// sparedError is the error of a call that does not count as a failure of Wolt, because none was made or because the caller
// ended it.
type sparedError struct{ error }

func (e sparedError) Unwrap() error { return e.error }

// spared reports whether a failed call is left out of the breaker's count. A server that asks for a pause is working: the
// pause is kept, and that is enough.
func spared(err error) bool {
	_, ok := errors.AsType[sparedError](err)
	return ok || provider.KindOf(err) == provider.KindRateLimited
}

// call makes a call if the guard lets it through, and has its body read. An answer that cannot be read counts as a failure,
// like none.
func (c *Client) call(ctx context.Context, r request, read func(body []byte) error) error {
	if err := c.paused(); err != nil {
		return err
	}

	_, err := c.guard.breaker.Execute(func() (struct{}, error) {
		if err := c.takeTurn(ctx); err != nil {
			return struct{}{}, sparedError{err}
		}

		body, err := c.exchange(ctx, r)
		if err != nil && ctx.Err() != nil {
			return struct{}{}, sparedError{err}
		}

		if err == nil {
			err = read(body)
		}
		return struct{}{}, err
	})

	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return c.circuitOpen()
	}

	if s, ok := errors.AsType[sparedError](err); ok {
		return s.error
	}
	return err //nolint:wrapcheck // It is a provider.Error, from the function above.
}

// Held reports whether no call is made now: Wolt has asked for a pause, or has failed too often in a row.
func (c *Client) Held() bool {
	return c.pause.left() > 0 || c.guard.breaker.State() == gobreaker.StateOpen
}

// takeTurn waits until the rate allows a call. What happened meanwhile counts: a queue of calls must not be sent when Wolt
// has begun to refuse or to fail.
func (c *Client) takeTurn(ctx context.Context) error {
	if err := c.config.Turn(ctx); ctx.Err() != nil {
		return c.ended(ctx)
	} else if err != nil {
		failure := c.fail(provider.KindRateLimited, "there is no turn under the rate", err)
		failure.RetryAfter = turnPause
		return failure
	}

	if c.guard.breaker.State() == gobreaker.StateOpen {
		return c.circuitOpen()
	}

	if err := c.paused(); err != nil {
		return err
	}
	return nil
}

// paused is the error of a call that falls into a pause, or nil.
func (c *Client) paused() error {
	left := c.pause.left()
	if left == 0 {
		return nil
	}

	failure := c.fail(provider.KindRateLimited, "the pause that was asked for is not over", nil)
	failure.RetryAfter = bound(left, maxRetryAfter)
	return failure
}

func (c *Client) circuitOpen() *provider.Error {
	c.guard.mu.Lock()
	left := time.Until(c.guard.closes)
	c.guard.mu.Unlock()

	failure := c.fail(provider.KindUnavailable, "no call was made", ErrCircuitOpen)
	failure.RetryAfter = bound(left, breakerPause)
	return failure
}
