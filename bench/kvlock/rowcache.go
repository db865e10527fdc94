package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// waiting is the number of clients that wait for a computation.
const waiting = 8

// value is of the size of a small JSON document.
var value = make([]byte, 300)

// coalesce measures the time from the end of a computation until each waiter in another process has the value.
func coalesce(ctx context.Context, b *bench) (rig.Figures, error) {
	clients, err := b.clients(ctx, waiting+1)
	if err != nil {
		return nil, err
	}
	var taken []time.Duration
	before := rig.WorkOf(b.service)
	for range b.n(60) {
		some, err := b.coalesced(ctx, clients)
		if err != nil {
			return nil, err
		}
		taken = append(taken, some...)
	}
	f := rig.Figures{}
	f.Since("coalesce", b.service, before, len(taken))
	f.Quantiles("coalesce", "us", taken)
	return f, nil
}

// coalesced makes the first client compute a key for which the other clients wait. It returns, for each of these, the time from the end of
// the computation until it had the value.
func (b *bench) coalesced(ctx context.Context, clients []*client) ([]time.Duration, error) {
	key := b.name("coalesce")
	var mu sync.Mutex
	var end time.Time
	computed := 0
	begun, finish := make(chan struct{}), make(chan struct{})
	compute := func(ctx context.Context) ([]byte, error) {
		mu.Lock()
		computed++
		mu.Unlock()
		close(begun)
		select {
		case <-finish:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		mu.Lock()
		defer mu.Unlock()
		end = time.Now()
		return value, nil
	}
	taken := make([]time.Duration, waiting)
	first := make(chan error, 1)
	go func() {
		_, err := clients[0].do(ctx, key, compute)
		first <- err
	}()
	<-begun
	go func() {
		time.Sleep(settles) // they wait by then
		close(finish)
	}()
	err := rig.Each(waiting, waiting, func(i int) error {
		_, err := clients[1+i].do(ctx, key, compute)
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		taken[i] = now.Sub(end)
		return err
	})
	if err = errors.Join(err, <-first); err == nil && computed != 1 {
		err = fmt.Errorf("%d computations of a key", computed)
	}
	return taken, err
}

// networkRead reads one key from the server.
func networkRead(ctx context.Context, b *bench) (rig.Figures, error) {
	c, key, err := stored(ctx, b)
	if err != nil {
		return nil, err
	}
	return b.repeat(b.n(2000), "read", "us", func() error { return whole(c.read(ctx, key)) })
}

// memoryRead finds one key in the memory of the process. A single hit is shorter than the resolution of the clock, so a thousand are
// measured together, without percentiles.
func memoryRead(ctx context.Context, b *bench) (rig.Figures, error) {
	c, key, err := stored(ctx, b)
	if err != nil {
		return nil, err
	}
	const together = 1000
	var each []time.Duration
	for range b.n(100) + 1 {
		start := time.Now()
		for range together {
			if err := whole(c.hit(ctx, key)); err != nil {
				return nil, err
			}
		}
		each = append(each, time.Since(start)/together)
	}
	each = each[1:] // the first fetched it
	slices.Sort(each)
	return rig.Figures{"memory_hit_ns": float64(each[len(each)/2])}, nil
}

func stored(ctx context.Context, b *bench) (*client, string, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, "", err
	}
	key := b.name("read")
	return c, key, store(ctx, c, key)
}

// store stores a value and waits until reads find it: a replica may lag behind.
func store(ctx context.Context, c *client, key string) error {
	if err := c.store(ctx, key, value); err != nil {
		return err
	}
	for found := 0; found < 100; { // in a row, as each may be answered by another replica
		v, err := c.read(ctx, key)
		if found++; err != nil || len(v) == 0 {
			found = 0
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
	return nil
}

func whole(got []byte, err error) error {
	if err == nil && len(got) != len(value) {
		err = fmt.Errorf("read %d bytes of %d", len(got), len(value))
	}
	return err
}

// batchRead reads a number of keys at once.
func batchRead(name string, keys int) measured {
	return func(ctx context.Context, b *bench) (rig.Figures, error) {
		c, err := b.client(ctx)
		if err != nil {
			return nil, err
		}
		all := make([]string, keys)
		for i := range all {
			all[i] = b.name(name)
			if err := c.store(ctx, all[i], value); err != nil {
				return nil, err
			}
		}
		if err := store(ctx, c, b.name(name)); err != nil { // earlier values are then found, too
			return nil, err
		}
		var trips []int64
		f, err := b.repeat(b.n(500), name, "us", func() error {
			before := c.trips.n.Load()
			found, err := c.readMany(ctx, all)
			trips = append(trips, c.trips.n.Load()-before)
			if err == nil && found != len(all) {
				err = fmt.Errorf("read %d keys of %d", found, len(all))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		slices.Sort(trips)
		f[name+"_round_trips"] = float64(trips[len(trips)/2])
		return f, nil
	}
}
