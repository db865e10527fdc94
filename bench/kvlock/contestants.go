package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidisaside"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// prepareOurs makes the bucket.
func prepareOurs(cfg kvlock.BucketConfig) func(context.Context, settings) error {
	return func(ctx context.Context, s settings) error {
		nc, js, err := rig.Connect(s.Address)
		if err != nil {
			return err
		}
		defer nc.Close()
		cfg.Bucket = s.Bucket
		return kvlock.CreateBucket(ctx, js, cfg)
	}
}

func openOurs(ctx context.Context, s settings) (*client, error) {
	t := &trips{}
	nc, js, err := rig.Connect(s.Address, nats.SetCustomDialer(t))
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
	var memory *flight.Flight // a second Flight, so that the first goes over the network
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
		store: func(ctx context.Context, key string, value []byte) error {
			_, err := f.Do(ctx, key, func(context.Context) ([]byte, error) { return value, nil }, flight.DoOptions{TTL: cacheTTL})
			return err
		},
		read: func(ctx context.Context, key string) ([]byte, error) {
			entry, err := f.Get(ctx, key)
			return entry.Value, err
		},
		hit: func(ctx context.Context, key string) ([]byte, error) {
			if memory == nil {
				cfg := flight.Config{Bucket: s.Bucket, Logger: quiet, Memory: flight.MemoryConfig{MaxBytes: 64 << 20}}
				if memory, err = flight.New(ctx, js, cfg); err != nil {
					return nil, err
				}
			}
			entry, err := memory.Get(ctx, key)
			return entry.Value, err
		},
		readMany: func(ctx context.Context, keys []string) (int, error) {
			entries, err := f.GetMany(ctx, keys)
			found := 0
			for _, entry := range entries {
				if entry.State == flight.Done {
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

// openEtcd opens a client with one session, which keeps one lease for all locks of the client.
func openEtcd(ctx context.Context, s settings) (*client, error) {
	t := &trips{}
	conn, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Address}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return t.dial(ctx, "tcp", address)
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("open etcd: %w", err)
	}
	session, err := concurrency.NewSession(conn, concurrency.WithTTL(int(s.TTL/time.Second)), concurrency.WithContext(ctx))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a session of etcd: %w", err), conn.Close())
	}
	return &client{
		trips: t,
		lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
			m := concurrency.NewMutex(session, "/"+name)
			return m.Unlock, m.Lock(ctx)
		},
		store: func(ctx context.Context, key string, value []byte) error {
			_, err := conn.Put(ctx, key, string(value))
			return err
		},
		read: func(ctx context.Context, key string) ([]byte, error) {
			r, err := conn.Get(ctx, key)
			if err != nil || len(r.Kvs) == 0 {
				return nil, errors.Join(err, fmt.Errorf("%d values of %q", r.OpResponse().Get().Count, key))
			}
			return r.Kvs[0].Value, nil
		},
		readMany: func(ctx context.Context, keys []string) (int, error) {
			gets := make([]clientv3.Op, len(keys))
			for i, key := range keys {
				gets[i] = clientv3.OpGet(key)
			}
			r, err := conn.Txn(ctx).Then(gets...).Commit()
			if err != nil {
				return 0, err
			}
			found := 0
			for _, one := range r.Responses {
				found += len(one.GetResponseRange().Kvs)
			}
			return found, nil
		},
		close: func() {
			_ = session.Close() // the lease ends by itself, then
			_ = conn.Close()    // nothing is written any more
		},
	}, nil
}

// redsyncRetry is the mean time between two tries of redsync: its default is random between 50 and 250 ms.
const redsyncRetry = 150 * time.Millisecond

// cacheTTL is the TTL of a value.
const cacheTTL = time.Hour

// openRueidis opens a client of rueidislock and rueidisaside, with the settings that their READMEs recommend for one server.
func openRueidis(ctx context.Context, s settings) (*client, error) {
	t := &trips{}
	option := rueidis.ClientOption{
		InitAddress: []string{s.Address},
		DialCtxFn: func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return t.dial(ctx, "tcp", address)
		},
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: option, KeyMajority: 1, KeyValidity: s.TTL, NoLoopTracking: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open rueidislock: %w", err)
	}
	aside, err := rueidisaside.NewClient(rueidisaside.ClientOption{ClientOption: option})
	if err != nil {
		locker.Close()
		return nil, fmt.Errorf("open rueidisaside: %w", err)
	}
	conn := aside.Client()
	if err := conn.Do(ctx, conn.B().Ping().Build()).Error(); err != nil {
		return nil, fmt.Errorf("ping redis: %w", err)
	}
	return &client{
		trips: t,
		lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
			held, release, err := locker.WithContext(ctx, name)
			return func(context.Context) error {
				lost := held.Err()
				release()
				if ctx.Err() != nil { // it ends with the context that it was taken with
					return nil
				}
				return lost
			}, err
		},
		do: func(ctx context.Context, key string, compute func(context.Context) ([]byte, error)) ([]byte, error) {
			v, err := aside.Get(ctx, cacheTTL, key, func(ctx context.Context, _ string) (string, error) {
				v, err := compute(ctx)
				return string(v), err
			})
			return []byte(v), err
		},
		store: func(ctx context.Context, key string, value []byte) error {
			return conn.Do(ctx, conn.B().Set().Key(key).Value(string(value)).Ex(cacheTTL).Build()).Error()
		},
		read: func(ctx context.Context, key string) ([]byte, error) {
			return conn.Do(ctx, conn.B().Get().Key(key).Build()).AsBytes()
		},
		hit: func(ctx context.Context, key string) ([]byte, error) {
			return conn.DoCache(ctx, conn.B().Get().Key(key).Cache(), cacheTTL).AsBytes()
		},
		readMany: func(ctx context.Context, keys []string) (int, error) {
			found, err := conn.Do(ctx, conn.B().Mget().Key(keys...).Build()).ToArray()
			return len(found), err
		},
		close: func() { locker.Close(); aside.Close() },
	}, nil
}

// openRedsync opens a client of redsync with its defaults, on one server. redsync gives up after 32 tries, so the client calls it again.
func openRedsync(ctx context.Context, s settings) (*client, error) {
	t := &trips{}
	conn := redis.NewClient(&redis.Options{Addr: s.Address, Dialer: t.dial})
	if err := conn.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("ping redis: %w", err), conn.Close())
	}
	locks := redsync.New(redsyncgoredis.NewPool(conn))
	return &client{
		trips: t,
		lock: func(ctx context.Context, name string) (func(context.Context) error, error) {
			m := locks.NewMutex(name, redsync.WithExpiry(s.TTL))
			err := m.LockContext(ctx)
			for err != nil && ctx.Err() == nil {
				err = m.LockContext(ctx)
			}
			return func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return err
			}, err
		},
		close: func() { _ = conn.Close() }, // nothing is written any more
	}, nil
}
