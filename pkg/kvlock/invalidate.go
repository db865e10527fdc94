package kvlock

import (
	"context"
	"fmt"
)

// Invalidate makes key absent, whatever it held. A computation under way loses its claim, so that what it computed from
// the old state of the world is not kept; those who wait for it compute again. Invalidating an absent key does nothing.
// Two round trips.
func (f *Flight) Invalidate(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	ctx, cancel := f.bound(ctx)
	defer cancel()
	for wait := minSettleWait; ; wait = min(2*wait, maxSettleWait) {
		slot, err := f.leader(ctx, key)
		if err == nil && slot.readable().State == Absent {
			return nil
		}
		if err == nil {
			_, err = f.publish(ctx, f.message(key, slot.Revision, nil, markerTTL(slot.TTL), true))
		}
		if err == nil {
			return nil
		}
		if isPermanent(err) {
			return fmt.Errorf("kvlock: invalidate %q: %w", key, err)
		}
		if !pause(ctx, wait) {
			return f.unavailable(ctx, "invalidate", []string{key}, err)
		}
	}
}
