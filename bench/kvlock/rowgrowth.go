package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// grown is how many other keys there are, one after the other.
var grown = []int{1_000, 10_000, 100_000}

// growth is what a lock and its unlock, and a read, cost with few and with many other keys in the same bucket.
func growth(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	f, stored := rig.Figures{}, 0
	for _, n := range grown {
		if err := b.grow(ctx, c, b.n(n)-stored); err != nil {
			return nil, err
		}
		stored = b.n(n)
		key := b.name("grown")
		if err := c.store(ctx, key, value); err != nil {
			return nil, err
		}
		ops := map[string]func() error{
			"lock": func() error {
				unlock, err := c.lock(ctx, b.name("lock"))
				if err != nil {
					return err
				}
				return unlock(ctx)
			},
			"read": func() error { return whole(c.read(ctx, key)) },
		}
		for name, op := range ops {
			got, err := b.repeat(b.n(1000), name, "us", op)
			if err != nil {
				return nil, err
			}
			f[fmt.Sprintf("growth_%s_%d_cpu_us", name, n)] = got[name+"_client_cpu_us"] + got[name+"_server_cpu_us"]
			f[fmt.Sprintf("growth_%s_%d_p50_us", name, n)] = got[name+"_p50_us"]
		}
		f[fmt.Sprintf("growth_%d_server_mb", n)] = float64(b.service.ResidentBytes()) / 1e6
	}
	for _, name := range []string{"lock", "read"} {
		few, many := f[fmt.Sprintf("growth_%s_%d_cpu_us", name, grown[0])], f[fmt.Sprintf("growth_%s_%d_cpu_us", name, grown[len(grown)-1])]
		f["growth_"+name+"_cpu_ratio"] = many / max(few, 1)
	}
	return f, nil
}

// grow stores n more values.
func (b *bench) grow(ctx context.Context, c *client, n int) error {
	keys := make(chan string)
	errs := make([]error, many)
	var storing sync.WaitGroup
	for i := range errs {
		storing.Go(func() {
			for key := range keys {
				errs[i] = errors.Join(errs[i], c.store(ctx, key, value))
			}
		})
	}
	for range n {
		keys <- b.name("other")
	}
	close(keys)
	storing.Wait()
	return errors.Join(errs...)
}

// growthColumns are those of growth.
func growthColumns() (all []rig.Column) {
	for _, name := range []string{"lock", "read"} {
		for _, n := range grown {
			all = append(all, rig.Column{
				Figure: fmt.Sprintf("growth_%s_%d_cpu_us", name, n), Title: fmt.Sprintf("%s, %d: CPU µs", name, n), Format: "%.0f",
			})
		}
		all = append(all, rig.Column{Figure: "growth_" + name + "_cpu_ratio", Title: "grew", Format: "%.2f", Spread: true})
	}
	for _, n := range grown {
		all = append(all, rig.Column{Figure: fmt.Sprintf("growth_%d_server_mb", n), Title: fmt.Sprintf("server MB, %d", n), Format: "%.0f"})
	}
	return all
}
