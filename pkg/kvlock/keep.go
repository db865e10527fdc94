package kvlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Keep renews the claim every third of ttl, 0 for Config.ClaimTTL, until stop is called, ctx ends or the claim is ended.
// The context it returns ends when ctx does, and with the cause ErrLost when the claim is lost: because the server said
// so, or because no renewal was acknowledged in time, even if the server cannot be reached. It then ends before the
// server gives the key away: at the TTL, less a margin, after the last renewal that was acknowledged was sent.
//
// stop returns when the renewing has ended; it leaves the claim as it is.
func (c *Claim) Keep(ctx context.Context, ttl time.Duration) (held context.Context, stop func()) {
	if ttl == 0 {
		ttl = c.flight.cfg.ClaimTTL
	}
	inner, cancel := context.WithCancelCause(ctx)
	var both sync.WaitGroup
	both.Go(func() { c.renew(inner, cancel, ttl) })
	expire := func() {
		err := fmt.Errorf("%w: claim %s of %q: no renewal was acknowledged in time", ErrLost, c.id, c.key)
		cancel(err)
		c.tellLost(inner, err)
	}
	both.Go(func() { c.guard(inner, expire) })
	late := func() {
		if until, ended := c.heldUntil(); ended == nil && !time.Now().Before(until) {
			expire()
		}
	}
	return punctual{inner, late}, func() {
		cancel(context.Canceled)
		both.Wait()
	}
}

// renew renews until ctx ends or the claim does.
func (c *Claim) renew(ctx context.Context, lost context.CancelCauseFunc, ttl time.Duration) {
	until, _ := c.heldUntil() //nolint:errcheck // renewing finds out
	// A claim that was begun for less than ttl, or a while ago, is due earlier.
	timer := time.NewTimer(min(ttl/3, time.Until(until)/2))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := c.Renew(ctx, ttl)
		_, ended := c.heldUntil()
		switch {
		case err == nil:
			timer.Reset(ttl / 3)
		case ctx.Err() != nil || errors.Is(ended, errEnded):
			return
		case errors.Is(err, ErrLost):
			lost(err)
			return
		default:
			c.flight.log.WarnContext(ctx, "kvlock: renewal failed, trying again", "key", c.key, "claim", c.id, "error", err)
			c.tell(ctx, EventRenewalFailed, err)
			timer.Reset(min(ttl/10, time.Second))
		}
	}
}

// guard ends ctx when the claim is no longer ours for sure. It shares nothing with a renewal that is under way, and so
// is on time when that hangs.
func (c *Claim) guard(ctx context.Context, expire func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		until, ended := c.heldUntil()
		left := time.Until(until)
		switch {
		case ended != nil:
			return
		case left <= 0:
			expire()
			return
		}
		timer.Reset(left)
	}
}

func (c *Claim) heldUntil() (until time.Time, ended error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline, c.ended
}
