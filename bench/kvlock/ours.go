package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// prepareOurs makes the bucket. A cluster that has just started takes a while.
func prepareOurs(cfg kvlock.BucketConfig) func(context.Context, settings) error {
	return func(ctx context.Context, s settings) error {
		nc, js, err := connect(s, &trips{})
		if err != nil {
			return err
		}
		defer nc.Close()
		cfg.Bucket = s.Bucket
		for {
			try, cancel := context.WithTimeout(ctx, 2*time.Second)
			err := kvlock.CreateBucket(try, js, cfg)
			cancel()
			if err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

func connect(s settings, t *trips) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(s.Address, nats.SetCustomDialer(t), nats.MaxReconnects(-1))
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	return nc, js, nil
}

func openOurs(ctx context.Context, s settings) (*client, error) {
	t := &trips{}
	nc, js, err := connect(s, t)
	if err != nil {
		return nil, err
	}
	quiet := slog.New(slog.DiscardHandler)
	f, err := flight.New(ctx, js, flight.Config{Bucket: s.Bucket, ClaimTTL: s.TTL, Logger: quiet, OpTimeout: timeout})
	if err != nil {
		nc.Close()
		return nil, err
	}
	l, err := kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: s.Bucket, Logger: quiet, TTL: s.TTL})
	if err != nil {
		f.Close()
		nc.Close()
		return nil, err
	}
	var memory *flight.Flight // a second one, so that the first goes over the network
	return &client{
		trips: t,
		lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
			lease, err := l.Acquire(ctx, name, kvlock.AcquireOptions{})
			if err != nil {
				return nil, err
			}
			return lease.Release, nil
		},
		do: func(ctx context.Context, key string, compute func(context.Context) ([]byte, error)) ([]byte, error) {
			r, err := f.Do(ctx, key, compute, flight.DoOptions{TTL: cacheTTL})
			return r.Value, err
		},
		wait: func(ctx context.Context, key string) error {
			_, err := f.Wait(ctx, key)
			return err
		},
		store: func(ctx context.Context, key string, value []byte) error {
			_, err := f.Do(ctx, key, func(context.Context) ([]byte, error) { return value, nil }, flight.DoOptions{TTL: cacheTTL})
			return err
		},
		read: func(ctx context.Context, key string) ([]byte, error) {
			slot, err := f.Get(ctx, key)
			return slot.Value, err
		},
		hit: func(ctx context.Context, key string) ([]byte, error) {
			if memory == nil {
				cfg := flight.Config{Bucket: s.Bucket, Logger: quiet, Memory: flight.MemoryConfig{MaxBytes: 64 << 20}}
				if memory, err = flight.New(ctx, js, cfg); err != nil {
					return nil, err
				}
			}
			slot, err := memory.Get(ctx, key)
			return slot.Value, err
		},
		readMany: func(ctx context.Context, keys []string) (int, error) {
			slots, err := f.GetMany(ctx, keys)
			found := 0
			for _, slot := range slots {
				if slot.State == flight.Done {
					found++
				}
			}
			return found, err
		},
		subscriptions: nc.NumSubscriptions,
		close: func() {
			if memory != nil {
				memory.Close()
			}
			l.Close()
			f.Close()
			nc.Close()
		},
	}, nil
}
