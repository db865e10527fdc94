package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// openEtcd is one session, which keeps one lease for all locks of the client.
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
			_ = session.Close() //nolint:errcheck // the lease ends by itself, then
			_ = conn.Close()    //nolint:errcheck // nothing is written any more
		},
	}, nil
}
