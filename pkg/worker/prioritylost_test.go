package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestHandlerChangesItsPriority has a work queue, which refuses two consumers of a subject.
func TestHandlerChangesItsPriority(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	cfg := b.config(t)
	with := func(priorities map[string]worker.Priority) *running {
		w := check.Must(worker.New(b.js, cfg))(t)

		for name, p := range priorities {
			check.OK(t, worker.Handle(w, "jobs."+name, worker.Policy{Priority: p}, complete))
		}
		return start(t, w)
	}

	for _, priorities := range []map[string]worker.Priority{
		{"a": 0, "b": 0}, {"a": worker.PriorityHigh, "b": 0}, {"a": worker.PriorityHigh, "b": worker.PriorityLow, "c": 0},
	} {
		r := with(priorities)
		b.publish(t, "jobs.a", `{}`)
		b.publish(t, "jobs.b", `{}`)

		for range 2 {
			s := wantOutcome(t, receive(t, b.settled, "a job's end"), worker.OutcomeCompleted)
			check.Equal(t, s.Consumer, worker.ConsumerOf(durable, priorities[strings.TrimPrefix(s.Subject, "jobs.")]), s.Subject)
		}

		check.OK(t, r.wait())
	}

	// Nobody has the low priority any more, but its consumer is still there.
	var log events

	cfg.Logger = log.logger()
	down := make(chan error, 10)
	cfg.Hooks.Ready = func(_ bool, reason error) { down <- reason }
	with(map[string]worker.Priority{"a": worker.PriorityHigh, "b": 0, "c": 0})
	check.Until(t, patience(), "the deletion to help", func() bool {
		err := b.js.DeleteConsumer(t.Context(), stream, durable+"-low")
		return (err == nil || errors.Is(err, jetstream.ErrConsumerNotFound)) && log.count(worker.EventReady) > 0
	})
}

// TestLostPriorityDoesNotStopTheOthers deletes the consumer of one priority. The others go
// on, and it does when the consumer is there again, with jobs that were held when it went.
func TestLostPriorityDoesNotStopTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		type readiness struct{ is, missing bool }

		ready := make(chan readiness, 100)
		started := make(chan string, 100)
		leave, long := make(chan struct{}, 100), make(chan struct{})
		h := func(_ context.Context, class string, _ *worker.Job[order]) error {
			started <- class

			if class == "high" {
				<-long
			} else {
				<-leave
			}
			return nil
		}
		cfg := b.config(t, func(c *worker.Config) {
			c.Hooks.Ready = func(is bool, reason error) {
				_, missing := errors.AsType[*worker.MissingError](reason)
				ready <- readiness{is, missing}
			}
		})

		maker := runClasses(t, b.js, cfg, h, threeClasses...)
		<-ready

		check.OK(t, maker.wait())

		cfg.AutoCreate = false
		runClasses(t, b.js, cfg, h, threeClasses...)
		<-ready
		b.publishClass(t, "low", 1)
		b.publishClass(t, "high", 1)
		<-started
		<-started

		consumer := check.Must(b.js.Consumer(t.Context(), stream, durable+"-low"))(t)

		check.OK(t, b.js.DeleteConsumer(t.Context(), stream, durable+"-low"))

		for _, finds := range []bool{false, true} { // first the server's notice, then the worker's own check
			got, want := <-ready, (readiness{missing: finds})
			check.That(t, got == want, "without a consumer: got %+v, want %+v", got, want)
		}

		for range 10 {
			natstest.Pass(time.Second)

			begun := time.Now()
			b.publishClass(t, "normal", 1)

			check.Equal(t, <-started, "normal", "class of the next job")
			within(t, "the start of a normal job", time.Since(begun), 0, time.Millisecond)

			leave <- struct{}{} // that one, or the low job
			<-b.settled
		}

		check.Equal(t, len(ready), 0, "reports while a consumer is missing")

		check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), stream, consumer.CachedInfo().Config)))

		got := <-ready
		check.That(t, got.is, "not ready with all consumers")

		b.publishClass(t, "low", 1)

		close(leave)
		natstest.Pass(time.Minute)

		for len(b.settled) > 0 {
			<-b.settled
		}

		close(long)

		check.Equal(t, wantOutcome(t, <-b.settled, worker.OutcomeCompleted).Consumer, durable+"-high", "consumer")

		other := check.Must(b.js.Consumer(t.Context(), stream, durable+"-high"))(t)

		check.Equal(t, other.CachedInfo().Delivered.Consumer, 1, "the high job was times delivered")

		check.Equal(t, b.storedMessages(t), 0, "messages left")
	})
}
