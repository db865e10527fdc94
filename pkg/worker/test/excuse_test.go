package test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/excuse"
)

// excuses returns a store whose bucket a worker has made.
func excuses(t *testing.T, b *bundle) (*excuse.Store, excuse.Message) {
	t.Helper()

	ready := make(chan bool, 1)
	cfg := b.config(t, func(c *worker.Config) { c.Hooks.Ready = func(is bool, _ error) { ready <- is } })
	r := run(t, b.js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error { return nil })
	receive(t, ready, "the worker")

	if err := r.wait(); err != nil {
		t.Fatal(err)
	}

	msg := excuse.Message{Stream: stream, Consumer: durable, Sequence: 7, Stored: time.Unix(0, 1_700_000_000_000_000_001)}

	return excuse.New(b.js, "jobs"), msg
}

func assertCount(t *testing.T, store *excuse.Store, msg excuse.Message, want int) {
	t.Helper()

	got, err := store.Count(t.Context(), msg)
	if err != nil || got != want {
		t.Errorf("%d excused, %v; want %d", got, err, want)
	}
}

func TestExcuseCountsEachDeliveryOnce(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	store, msg := excuses(t, b)
	assertCount(t, store, msg, 0)

	for _, delivery := range []int{1, 1, 3, 2, 3} { // repeated, and late
		if err := store.Add(t.Context(), msg, delivery, 1, 0); err != nil {
			t.Fatal(err)
		}
	}

	assertCount(t, store, msg, 2)

	reborn := msg
	reborn.Stored = msg.Stored.Add(1)
	assertCount(t, store, reborn, 0)

	if err := store.Add(t.Context(), reborn, 1, 1, 0); err != nil {
		t.Fatal(err)
	}

	assertCount(t, store, reborn, 1)
}

func TestExcusesOfOneDeliveryByManyWritersCountOnce(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	store, msg := excuses(t, b)

	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if err := store.Add(t.Context(), msg, 1, 1, 0); err != nil {
				t.Error(err)
			}
		})
	}

	group.Wait()
	assertCount(t, store, msg, 1)
}

func TestExcuseOutlivesTheDelayByAWeek(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const delay, week = 24 * time.Hour, 7 * 24 * time.Hour

		b := setup(t, srv)
		store, msg := excuses(t, b)

		if err := store.Add(t.Context(), msg, 1, 1, delay); err != nil {
			t.Fatal(err)
		}

		pass(delay + week - time.Minute)
		assertCount(t, store, msg, 1)
		pass(2 * time.Minute)
		assertCount(t, store, msg, 0)
	}, func(c *natsrun.Config) {
		c.Mutate = func(o *server.Options) { o.PingInterval = 24 * time.Hour } // a month of pings takes long
	})
}
