package main

import (
	"context"
	"sync"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// The operations that are measured beside growing numbers of keys, waiters, callers and watchers.
const (
	lockAmongKeys   rig.Growth = "lock_keys"
	readAmongKeys   rig.Growth = "read_keys"
	turnOfClients   rig.Growth = "turn_clients"
	turnOfWaiters   rig.Growth = "turn_waiters"
	resultOfCallers rig.Growth = "result_callers"
	changeOfWatched rig.Growth = "change_watched"
)

// fewest is the first number of waiters, callers and watchers.
const fewest = 10

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
		lockAmongKeys.Hold(f, times, rig.OwnBytes(), b.service)
	}
	return f, nil
}

// grow stores n more values.
func (b *bench) grow(ctx context.Context, c *client, n int) error {
	return rig.Each(many, n, func(int) error { return c.store(ctx, b.name("other"), value) })
}

// growingWaiters measures the costs of a turn while more and more callers, over ten clients, hand one lock to each other, and while 100
// callers do so over more and more clients.
func growingWaiters(ctx context.Context, b *bench) (rig.Figures, error) {
	const all = 100
	clients, err := b.clients(ctx, all)
	if err != nil {
		return nil, err
	}
	f := rig.Figures{}
	for _, times := range rig.Times {
		err := b.turns(ctx, f, turnOfWaiters, times, fewest*times, clients[:fewest])
		if err == nil {
			err = b.turns(ctx, f, turnOfClients, times, all, clients[:times])
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// turns measures turns after every caller has had one.
func (b *bench) turns(ctx context.Context, f rig.Figures, g rig.Growth, times, callers int, clients []*client) error {
	turning, cancel := context.WithCancel(ctx)
	defer cancel()
	n, name := b.n(2000), b.name("turns")
	var mu sync.Mutex
	var before rig.Work
	turn := 0
	count := func() {
		mu.Lock()
		defer mu.Unlock()
		switch turn++; turn {
		case callers:
			before = rig.WorkOf(b.service)
		case callers + n:
			g.Add(f, times, b.service, before, n)
			g.Hold(f, times, rig.OwnBytes(), b.service)
			cancel()
		}
	}
	return rig.Together(callers, func(i int) error {
		defer cancel()
		for turning.Err() == nil {
			unlock, err := clients[i%len(clients)].lock(turning, name)
			if err == nil {
				count()
				err = unlock(ctx)
			}
			if err != nil && turning.Err() == nil {
				return err
			}
		}
		return nil
	})
}

// growingCallers measures the costs of giving the result of one computation to ever more callers, over ten clients.
func growingCallers(ctx context.Context, b *bench) (rig.Figures, error) {
	clients, err := b.clients(ctx, fewest+1)
	if err != nil {
		return nil, err
	}
	f := rig.Figures{}
	for _, times := range rig.Times {
		callers := fewest * times
		keys := max(1, b.n(4000)/callers)
		before := rig.WorkOf(b.service)
		for range keys {
			if _, err := b.coalesced(ctx, clients, callers); err != nil {
				return nil, err
			}
		}
		resultOfCallers.Add(f, times, b.service, before, keys*callers)
		resultOfCallers.Hold(f, times, rig.OwnBytes(), b.service)
	}
	return f, nil
}

// growingWatchers measures the costs of a change of a result while ever more results are watched, each by a watcher of its own.
func growingWatchers(ctx context.Context, b *bench) (rig.Figures, error) {
	clients, err := b.clients(ctx, 2)
	if err != nil {
		return nil, err
	}
	f := rig.Figures{}
	var keys []string
	var seen []func(context.Context) error
	for _, times := range rig.Times {
		for len(keys) < fewest*times {
			key := b.name("watched")
			one, err := clients[1].watch(key)
			if err != nil {
				return nil, err
			}
			keys, seen = append(keys, key), append(seen, one)
		}
		before, n := rig.WorkOf(b.service), b.n(2000)
		for i := range n {
			err := clients[0].store(ctx, keys[i%len(keys)], value)
			if err == nil {
				err = seen[i%len(keys)](ctx)
			}
			if err == nil {
				err = clients[0].forget(ctx, keys[i%len(keys)])
			}
			if err != nil {
				return nil, err
			}
		}
		changeOfWatched.Add(f, times, b.service, before, n)
		changeOfWatched.Hold(f, times, rig.OwnBytes(), b.service)
	}
	return f, nil
}
