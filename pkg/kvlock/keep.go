package kvlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Keep renews the claim every third of ttl, 0 for Config.ClaimTTL, until stop is called or ctx ends. The context it
// returns ends when ctx does, and with the cause ErrLost when the claim is lost: because the server said so, or because
// no renewal was acknowledged in time, even if the server cannot be reached. stop returns when the renewing has ended;
// it leaves the claim as it is.
func (c *Claim) Keep(ctx context.Context, ttl time.Duration) (held context.Context, stop func()) {
	if ttl == 0 {
		ttl = c.flight.cfg.ClaimTTL
	}
	held, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.keep(held, ttl); err != nil {
			cancel(err)
		}
	}()
	return held, func() {
		cancel(context.Canceled)
		<-done
	}
}

// keep returns nil when ctx ended, and why the claim was lost otherwise.
func (c *Claim) keep(ctx context.Context, ttl time.Duration) error {
	timer := time.NewTimer(ttl / 3)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		until := c.heldUntil()
		renew, cancel := context.WithDeadline(ctx, until)
		err := c.Renew(renew, ttl)
		cancel()
		switch {
		case err == nil:
			timer.Reset(ttl / 3)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrLost):
			return err
		case !time.Now().Before(until):
			return fmt.Errorf("%w: claim %s of %q: no renewal was acknowledged in time: %w", ErrLost, c.id, c.key, err)
		default:
			c.flight.log.Warn("kvlock: renewal failed, trying again", "key", c.key, "claim", c.id, "error", err)
			timer.Reset(min(ttl/10, time.Second))
		}
	}
}

func (c *Claim) heldUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline
}
