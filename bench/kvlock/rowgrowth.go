package main

import (
	"context"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// The operations that are measured with growing numbers of keys.
const (
	lockAmongKeys rig.Growth = "lock_keys"
	readAmongKeys rig.Growth = "read_keys"
)

// growth measures the costs of a lock and its unlock, and of a read, with few and with many other keys in the same bucket.
func growth(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	f, stored := rig.Figures{}, 0
	for _, times := range rig.Times {
		n := b.keys / 100 * times
		if err := b.grow(ctx, c, n-stored); err != nil {
			return nil, err
		}
		stored = n
		key := b.name("grown")
		if err := store(ctx, c, key); err != nil {
			return nil, err
		}
		for g, op := range map[rig.Growth]func() error{
			lockAmongKeys: func() error { return b.cycle(ctx, c) },
			readAmongKeys: func() error { return whole(c.read(ctx, key)) },
		} {
			got, err := b.repeat(b.n(4000), "op", "us", op)
			if err != nil {
				return nil, err
			}
			g.Set(f, times, got["op_client_cpu_us"]+got["op_server_cpu_us"])
		}
		lockAmongKeys.Hold(f, times, b.service)
	}
	return f, nil
}

// grow stores n more values.
func (b *bench) grow(ctx context.Context, c *client, n int) error {
	return rig.Each(many, n, func(int) error { return c.store(ctx, b.name("other"), value) })
}
