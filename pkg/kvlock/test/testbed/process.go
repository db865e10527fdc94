package testbed

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// Client is the task of a process with a connection of its own.
type Client struct {
	TTL time.Duration // of the lock or claim that the process holds
	URL string        // of its server
}

// Role returns a role in which a process runs work with a connection of its own.
func Role(name string, work func(ctx context.Context, js jetstream.JetStream, c Client) error) crash.Role[Client] {
	return crash.Role[Client]{Name: name, Run: func(ctx context.Context, c Client) error {
		nc, err := nats.Connect(c.URL, nats.MaxReconnects(-1))
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		return work(ctx, js, c)
	}}
}

// Listening is New with a server that other processes reach.
func Listening(t *testing.T) *Bed {
	t.Helper()
	return On(t, natstest.Server(t, func(c *natsrun.Config) { c.Listen = true }), kvlock.BucketConfig{Bucket: Bucket})
}

// Heap is what this process uses: what is on the heap, and its goroutines' stacks.
func Heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
