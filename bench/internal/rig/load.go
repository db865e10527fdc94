package rig

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Connect opens a separate connection to the servers at an address.
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

// Each has callers, all at once, call do for n indices, the next index each. A caller ends with its first error.
func Each(callers, n int, do func(i int) error) error {
	var all sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, callers)
	for caller := range callers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[caller] == nil; i = int(next.Add(1)) - 1 {
				errs[caller] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
