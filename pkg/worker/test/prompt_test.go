package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestDeletedConsumerIsNoticedAtOnce holds the server's notice against the slow way to
// find out, a request that stays unanswered for three seconds.
func TestDeletedConsumerIsNoticedAtOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		ready := make(chan bool, 10)
		jobs := make(chan time.Time, 1)
		cfg := b.config(t, func(c *worker.Config) { c.Hooks.Ready = func(is bool, _ error) { ready <- is } })
		run(t, b.js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error {
			jobs <- time.Now()
			return nil
		})
		<-ready
		pass(500 * time.Millisecond) // the request is at the server

		check.OK(t, b.js.DeleteConsumer(t.Context(), stream, durable))

		deleted := time.Now()
		b.publish(t, "jobs.1", `{}`)

		waited := (<-jobs).Sub(deleted)
		check.That(t, waited <= time.Second, "the next job started %s after the deletion, want at most 1s", waited)
	})
}

// TestRestartedServerIsNotWaitedFor restarts the server, which answers a worker's request
// with a notice first and no look-up that follows. A worker that waits for the look-up
// loses five seconds at every restart. The measure is the server's clock: a marker that was
// delivered before is delivered again after four. Only a busy machine lets the marker win
// against a worker that does not wait, and not each time. (Not in a bubble: reconnecting
// uses a timer of the process.)
func TestRestartedServerIsNotWaitedFor(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)

	marks := check.Must(b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MARKS", Subjects: []string{"mark"}}))(t)

	ready := make(chan bool, 100)
	jobs := make(chan struct{}, 100)
	cfg := b.config(t, func(c *worker.Config) { c.Hooks.Ready = func(is bool, _ error) { ready <- is } })
	run(t, b.js, cfg, worker.Policy{}, func(context.Context, *worker.Job[order]) error {
		jobs <- struct{}{}
		return nil
	})
	receive(t, ready, "the worker")

	const rounds = 10
	for round := range rounds {
		marker, err := marks.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
			AckWait: 4 * time.Second, DeliverPolicy: jetstream.DeliverNewPolicy, Durable: fmt.Sprint(round),
		})
		check.OK(t, err)

		b.publish(t, "mark", "")

		check.OK(t, check.Err(marker.Next()))

		b.restart(t)

		b.publish(t, "jobs.1", `{}`)

		if jobIsFirst(t, marker, jobs) {
			return
		}
	}

	t.Errorf("the marker came before the job after each of %d restarts", rounds)
}

// jobIsFirst waits for the job, and reports whether it came before the marker.
func jobIsFirst(t *testing.T, marker jetstream.Consumer, jobs <-chan struct{}) bool {
	t.Helper()

	marks := make(chan struct{}, 100)
	marking := check.Must(marker.Consume(func(jetstream.Msg) { marks <- struct{}{} }))(t)

	receive(t, jobs, "the job")

	first := len(marks) == 0

	marking.Stop()
	<-marking.Closed()
	return first
}
