package worker_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// rivals is how many connections want one key at the same time.
const rivals = 6

// everywhere runs a test on one server and on three.
func everywhere(t *testing.T, test func(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream))) {
	t.Helper()

	t.Run("one server", func(t *testing.T) {
		t.Parallel()

		srv := natstest.Server(t)
		connect := func() (*nats.Conn, jetstream.JetStream) { return natstest.Connect(t, srv) }
		jobStream(t, connect, 1)
		test(t, connect)
	})
	t.Run("three servers", func(t *testing.T) {
		t.Parallel()

		cluster := natstest.Cluster(t, 3)
		connect := func() (*nats.Conn, jetstream.JetStream) { return natstest.ConnectURL(t, cluster.URLs()) }
		jobStream(t, connect, 3)
		test(t, connect)
	})
}

// jobStream makes the stream that the package recommends.
func jobStream(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream), replicas int) {
	t.Helper()

	_, js := connect()
	cfg := worker.StreamConfig(stream, pattern)
	cfg.Replicas = replicas

	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error { return check.Err(js.CreateOrUpdateStream(ctx, cfg)) }))
}

// stored counts the messages of the job stream.
func stored(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()

	var n uint64

	err := natstest.UntilAnswered(t, func(ctx context.Context) error {
		s, err := js.Stream(ctx, stream)
		if err == nil {
			n = s.CachedInfo().State.Msgs
		}
		return err
	})
	check.OK(t, err)
	return n
}

// TestKeyStaysTakenFromItsScheduleToItsRecord has rivals insert the key of each job while its schedule fires, and it runs and ends.
func TestKeyStaysTakenFromItsScheduleToItsRecord(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, connect func() (*nats.Conn, jetstream.JetStream)) {
		const keys = 30
		job := func(id string, k int) worker.NewJob {
			return worker.NewJob{ID: id, Args: order{}, Subject: "jobs.k", Unique: &worker.Unique{Key: fmt.Sprint(k), Keep: time.Hour}}
		}
		_, js := connect()
		b, c := &bundle{settled: make(chan worker.Settlement, 10*keys)}, client(t, js, func(c *worker.ClientConfig) { c.SettleTimeout = patience() })
		for k := range keys {
			first := job("first", k)
			first.Delay = time.Duration(500+20*k) * time.Millisecond
			insert(t, c, first)
		}
		var group sync.WaitGroup
		ended := make(chan struct{})
		var tried atomic.Int32
		for r := range rivals {
			_, js := connect()
			c := client(t, js, func(c *worker.ClientConfig) { c.SettleTimeout = patience() })
			group.Go(func() {
				for i := r; ; i++ {
					select {
					case <-ended:
						return
					default:
					}
					again := job("again", i%keys)
					if i%2 == 0 {
						again = later(again)
					}
					got, err := c.Insert(t.Context(), again)
					check.That(t, err == nil && got.Duplicate && got.ID == "first", "an insert while the key was taken: %+v, %v", got, err)
					tried.Add(1)
				}
			})
		}
		run(t, js, b.config(t), worker.Policy{}, complete)
		for range keys {
			wantOutcome(t, receive(t, b.settled, "a job"), worker.OutcomeCompleted)
		}
		close(ended)
		group.Wait()
		// In a cluster a job leaves the stream a little after its acknowledgement.
		check.Until(t, patience(), "only the records to be left", func() bool { return stored(t, js) == keys })
		t.Logf("%d inserts refused", tried.Load())
	})
}
