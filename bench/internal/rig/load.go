package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Connect opens a connection of its own to the servers at an address.
func Connect(address string, options ...nats.Option) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(address, append(options, nats.MaxReconnects(-1))...)
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

// Publish publishes n messages without waiting for each answer, and returns when all are stored.
func Publish(ctx context.Context, js jetstream.JetStream, n int, message func(i int) (*nats.Msg, error)) error {
	for i := range n {
		m, err := message(i)
		if err == nil {
			_, err = js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute))
		}
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Together calls do n times at once.
func Together(n int, do func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Each has callers, all at once, call do for n indices, the next index each. A caller ends with its first error.
func Each(callers, n int, do func(i int) error) error {
	var next atomic.Int64
	return Together(callers, func(int) error {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if err := do(i); err != nil {
				return err
			}
		}
		return nil
	})
}
