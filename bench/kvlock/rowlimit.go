package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/kvlock"
)

// permits is how many of the clients hold a permit at once.
const permits = 4

// ourLimits are the semaphore and the rate limiter of a client, which are opened when they are first used.
type ourLimits struct {
	js        jetstream.JetStream
	bucket    string
	semaphore *kvlock.Semaphore
	rate      *kvlock.RateLimiter
}

// permit waits for one of the permits of name.
func (o *ourLimits) permit(ctx context.Context, name string) (release func(), err error) {
	if o.semaphore == nil {
		cfg := kvlock.SemaphoreConfig{Bucket: o.bucket, Logger: slog.New(slog.DiscardHandler), Name: "bench", Permits: permits, TTL: lockTTL}
		if o.semaphore, err = kvlock.NewSemaphore(ctx, o.js, cfg); err != nil {
			return nil, err
		}
	}
	p, err := o.semaphore.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	return p.Release, nil
}

// turn waits for a call of name, which the rate always permits.
func (o *ourLimits) turn(ctx context.Context, name string) (err error) {
	if o.rate == nil {
		const unlimited = kvlock.MaxPermits
		cfg := kvlock.RateLimiterConfig{Bucket: o.bucket, Logger: slog.New(slog.DiscardHandler), Name: "bench", Burst: unlimited, Per: time.Second, Rate: unlimited}
		if o.rate, err = kvlock.NewRateLimiter(ctx, o.js, cfg); err != nil {
			return err
		}
	}
	return o.rate.Wait(ctx, name)
}

func (o *ourLimits) close() {
	if o.semaphore != nil {
		o.semaphore.Close()
	}
	if o.rate != nil {
		o.rate.Close()
	}
}

// permitRelease is a permit that no other client wants.
func permitRelease(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	name := b.name("permit")
	return b.repeat(b.n(1000), "permit", "us", func() error {
		release, err := c.permit(ctx, name)
		if err == nil {
			release()
		}
		return err
	})
}

// rateTurn is a call that the rate permits at once.
func rateTurn(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	name := b.name("rate")
	return b.repeat(b.n(1000), "rate", "us", func() error { return c.turn(ctx, name) })
}

// permitsShared is 32 clients that hold one of the permits for a millisecond each, again and again.
func permitsShared(ctx context.Context, b *bench) (rig.Figures, error) {
	clients, err := b.clients(ctx, many)
	if err != nil {
		return nil, err
	}
	name, length := b.name("permits"), max(time.Second, b.d(5*time.Second))
	timed, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	counts, errs := make([]int, many), make([]error, many)
	before := rig.WorkOf(b.service)
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			for timed.Err() == nil {
				release, err := c.permit(timed, name)
				if err != nil {
					if timed.Err() == nil {
						errs[i] = err
					}
					return
				}
				time.Sleep(hold)
				release()
				counts[i]++
			}
		})
	}
	all.Wait()
	if at := slices.IndexFunc(errs, func(err error) bool { return err != nil }); at >= 0 {
		return nil, errs[at]
	}
	n := 0
	for _, count := range counts {
		n += count
	}
	f := rig.Figures{
		"permits_per_s":    float64(n) / length.Seconds(),
		"permits_fairness": float64(slices.Min(counts)) / float64(slices.Max(counts)),
	}
	f.Since("permits", b.service, before, n)
	return f, nil
}
