package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestConsumersOfPriorities checks their names, which the normal priority's does not change,
// and that Run names the one that is missing or wrong.
func TestConsumersOfPriorities(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	none := func(context.Context, string, *worker.Job[order]) error { return nil }

	r := runClasses(t, b.js, b.config(t), none, threeClasses...)
	receive(t, b.ready, "the worker to be ready")

	check.OK(t, r.wait())

	s := check.Must(b.js.Stream(t.Context(), stream))(t)

	var names []string
	for name := range s.ConsumerNames(t.Context()).Name() {
		names = append(names, name)
	}

	slices.Sort(names)

	want := []string{durable, durable + "-high", durable + "-low"}
	check.That(t, slices.Equal(names, want), "consumers %v, want %v", names, want)

	// Without AutoCreate one that is wrong, and one that is missing, are named together.
	consumer, err := s.Consumer(t.Context(), durable+"-low")
	check.OK(t, err)

	wrong := consumer.CachedInfo().Config
	wrong.AckWait = time.Hour

	check.OK(t, check.Err(s.UpdateConsumer(t.Context(), wrong)))

	check.OK(t, s.DeleteConsumer(t.Context(), worker.ConsumerOf(durable, worker.PriorityHigh)))

	err = runClasses(t, b.js, b.config(t, func(c *worker.Config) { c.AutoCreate = false }), none, threeClasses...).refuses()

	missing, isMissing := errors.AsType[*worker.MissingError](err)
	drift, isDrift := errors.AsType[*worker.DriftError](err)

	check.That(t, isMissing && missing.Asset == "consumer JOBS/cook-high" && isDrift && drift.Asset == "consumer JOBS/cook-low",
		"Run: %v, want cook-high missing and cook-low not as it must be", err)
}

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
			s := receive(t, b.settled, "a job's end")
			if want := worker.ConsumerOf(durable, priorities[strings.TrimPrefix(s.Subject, "jobs.")]); s.Consumer != want || s.Outcome != worker.OutcomeCompleted {
				t.Errorf("%s: %s by %s, want completed by %s", s.Subject, s.Outcome, s.Consumer, want)
			}
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

// TestPrioritiesThatAreRefused has those that do not exist, and two for one subject.
func TestPrioritiesThatAreRefused(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)

	w := check.Must(worker.New(b.js, b.config(t)))(t)

	for pattern, test := range map[string]struct {
		priority worker.Priority
		says     string
	}{
		"jobs.a.>": {worker.PriorityHigh, ""},
		"jobs.b.>": {3, "use PriorityLowest to PriorityHighest, -2 to 2"},
		"jobs.c.>": {-3, "Policy.Priority is -3"},
	} {
		err := worker.Handle(w, pattern, worker.Policy{Priority: test.priority}, complete)
		check.That(t, fmt.Sprint(err) != "<nil>" == (test.says != "") && (err == nil || strings.Contains(err.Error(), test.says)),
			"%s: %v, want %q", pattern, err, test.says)
	}

	err := worker.Handle(w, "jobs.a.x", worker.Policy{}, complete)
	check.ErrorContains(t, err, "publish the jobs of each priority under their own subject")

	long := check.Must(worker.New(b.js, b.config(t, func(c *worker.Config) { c.Consumer = strings.Repeat("c", 255) })))(t)

	check.ErrorContains(t, worker.Handle(long, "jobs.a", worker.Policy{Priority: worker.PriorityLow}, complete), "shorter Config.Consumer")
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

			if class := <-started; class != "normal" || time.Since(begun) > time.Millisecond {
				t.Errorf("%s after %s, want a normal job at once", class, time.Since(begun))
			}

			leave <- struct{}{} // that one, or the low job
			<-b.settled
		}

		if len(ready) != 0 {
			t.Errorf("%+v while a consumer is missing", <-ready)
		}

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

		if s := <-b.settled; s.Consumer != durable+"-high" || s.Outcome != worker.OutcomeCompleted {
			t.Errorf("%s: %s, want the high job completed", s.Subject, s.Outcome)
		}

		other := check.Must(b.js.Consumer(t.Context(), stream, durable+"-high"))(t)

		check.Equal(t, other.CachedInfo().Delivered.Consumer, 1, "the high job was times delivered")

		check.Equal(t, b.left(t), 0, "messages left")
	})
}

// TestPrioritiesOfAStreamThatIsMadeAnew deletes the stream and restarts the server.
func TestPrioritiesOfAStreamThatIsMadeAnew(t *testing.T) {
	t.Parallel()

	const n = 100

	b := setup(t, nil)
	cfg := b.config(t, func(c *worker.Config) { c.Concurrency = 5 })
	runClasses(t, b.js, cfg, func(context.Context, string, *worker.Job[order]) error { return nil }, threeClasses...)

	wait := func(want bool) {
		for receive(t, b.ready, "the worker") != want {
			continue
		}
	}
	work := func() {
		for _, class := range classNames {
			b.publishClass(t, class, n)
		}

		for done := 0; done < len(classNames)*n; {
			if s := receive(t, b.settled, "the jobs"); s.Outcome == worker.OutcomeCompleted {
				done++
			}
		}
	}

	wait(true)
	work()

	s := check.Must(b.js.Stream(t.Context(), stream))(t)

	check.OK(t, b.js.DeleteStream(t.Context(), stream))

	wait(false)

	check.OK(t, check.Err(b.js.CreateStream(t.Context(), s.CachedInfo().Config)))

	wait(true)
	work()
	b.restart(t)
	work()

	check.Equal(t, b.left(t), 0, "messages left")
}
