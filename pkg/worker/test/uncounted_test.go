package test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/uncounted"
)

// uncountedStore returns a store whose bucket a worker has made.
func uncountedStore(t *testing.T, b *bundle) (*uncounted.Store, uncounted.Message) {
	t.Helper()

	ready := make(chan bool, 1)
	cfg := b.config(t, func(c *worker.Config) { c.Hooks.Ready = func(is bool, _ error) { ready <- is } })
	r := run(t, b.js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error { return nil })
	receive(t, ready, "the worker")

	check.OK(t, r.wait())

	msg := uncounted.Message{Stream: stream, Consumer: durable, Sequence: 7, Stored: time.Unix(0, 1_700_000_000_000_000_001)}

	records := check.Must(kvrecord.New(kvrecord.Config{JetStream: b.js}))(t)

	t.Cleanup(records.Close)
	return uncounted.New(records.Bucket("jobs")), msg
}

func assertCount(t *testing.T, store *uncounted.Store, msg uncounted.Message, want int) {
	t.Helper()

	got, err := store.Count(t.Context(), msg)
	check.That(t, err == nil && got == want, "%d uncounted, %v; want %d", got, err, want)
}

func TestEachUncountedDeliveryIsRecordedOnce(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	store, msg := uncountedStore(t, b)
	assertCount(t, store, msg, 0)

	for _, delivery := range []int{1, 1, 3, 2, 3} { // repeated, and late
		check.OK(t, store.Add(t.Context(), msg, delivery, 1, 0))
	}

	assertCount(t, store, msg, 2)

	reborn := msg
	reborn.Stored = msg.Stored.Add(1)
	assertCount(t, store, reborn, 0)

	check.OK(t, store.Add(t.Context(), reborn, 1, 1, 0))

	assertCount(t, store, reborn, 1)
}

func TestUncountedDeliveryByManyWritersIsRecordedOnce(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	store, msg := uncountedStore(t, b)

	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			check.Is(t, store.Add(t.Context(), msg, 1, 1, 0), nil)
		})
	}

	group.Wait()
	assertCount(t, store, msg, 1)
}

func TestUncountedDeliveriesOutliveTheDelayByAWeek(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const delay, week = 24 * time.Hour, 7 * 24 * time.Hour

		b := setup(t, srv)
		store, msg := uncountedStore(t, b)

		check.OK(t, store.Add(t.Context(), msg, 1, 1, delay))

		pass(delay + week - time.Minute)
		assertCount(t, store, msg, 1)
		pass(2 * time.Minute)
		assertCount(t, store, msg, 0)
	}, func(c *natsrun.Config) {
		natsrun.ChangeOptions(c, func(o *server.Options) { o.PingInterval = 24 * time.Hour }) // a month of pings takes long
	})
}
