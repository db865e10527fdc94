package kvlock

import "context"

// Invalidate makes key absent, whatever it held. A computation under way loses its claim, so that what it computed from
// the old state of the world is not kept; those who wait for it compute again.
//
// It always writes, for a key that a read says to be absent may be there. The marker that it leaves is gone after two
// minutes, or after twice the TTL of what it hides. Two round trips.
func (f *Flight) Invalidate(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	ctx, cancel := f.bound(ctx)
	defer cancel()
	return f.persist(ctx, "invalidate", key, func() error {
		slot, err := f.leader(ctx, key)
		if err == nil {
			_, err = f.publish(ctx, f.message(key, slot.Revision, nil, markerTTL(slot.TTL), true), tryTimeout)
		}
		return err
	})
}
