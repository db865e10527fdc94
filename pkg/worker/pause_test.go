package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// heartbeats is how long a worker takes to follow a pause, and its latest request to end.
const heartbeats = 3 * time.Second

// runTwoHandlers runs a worker with a handler for jobs.a.>, of a priority, and one for jobs.b.>. It returns the worker once that is ready, and what
// the handlers start.
func runTwoHandlers(t *testing.T, b *bundle, cfg worker.Config, a worker.Priority) (*worker.Worker, <-chan worker.Info) {
	t.Helper()
	started, ready := make(chan worker.Info, 100), make(chan bool, 10)
	cfg.Hooks.Ready = func(is bool, _ error) { ready <- is }
	cfg.Hooks.Paused = func(patterns int) { b.paused.Store(int64(patterns)) }
	w := check.Must(worker.New(b.js, cfg))(t)
	for pattern, priority := range map[string]worker.Priority{"jobs.a.>": a, "jobs.b.>": worker.PriorityNormal} {
		check.OK(t, worker.Handle(w, pattern, worker.Policy{Priority: priority}, func(_ context.Context, job *worker.Job[order]) error {
			started <- job.Info
			return nil
		}))
	}
	check.That(t, w.Paused("jobs.b.1"), "jobs may start before the worker has read the pauses")
	start(t, w)
	check.That(t, <-ready, "the worker is not ready")
	return w, started
}

// TestPausedHandler pauses one of two handlers, which share a consumer or do not, before and after the worker starts.
func TestPausedHandler(t *testing.T) {
	for name, test := range map[string]struct {
		priority worker.Priority
		first    bool
		until    time.Duration
	}{
		"shared": {}, "shared, until": {until: 3 * time.Minute}, "shared, first": {first: true}, "apart": {priority: worker.PriorityLow},
		"apart, until": {priority: worker.PriorityLow, until: 3 * time.Minute}, "apart, first": {priority: worker.PriorityLow, first: true},
	} {
		runKeyedBubble(t, name, func(t *testing.T, b *bundle) {
			c := client(t, b.js)
			makeAssets(t, b)
			pause := worker.Pause{By: "ada", Pattern: "jobs.a.>"}
			if test.until > 0 {
				pause.Until = time.Now().Add(test.until)
			}
			var w *worker.Worker
			var started <-chan worker.Info
			if !test.first {
				w, started = runTwoHandlers(t, b, b.config(t), test.priority)
			}
			check.OK(t, c.Pause(t.Context(), pause))
			if test.first {
				w, started = runTwoHandlers(t, b, b.config(t), test.priority)
			} else {
				natstest.Pass(heartbeats)
			}
			for i := range 5 {
				b.publish(t, "jobs.a.1", fmt.Sprintf(`{"n":%d}`, i))
				b.publish(t, "jobs.b.1", `{}`)
			}
			natstest.Pass(2 * time.Minute)
			for range 5 {
				info := <-started
				check.That(t, info.Subject == "jobs.b.1", "%s started", info.Subject)
			}
			check.Equal(t, len(started), 0, "paused jobs that started")
			check.Equal(t, b.storedMessages(t), 5, "jobs that wait")
			check.Equal(t, b.paused.Load(), 1, "paused patterns")
			check.That(t, w.Paused("jobs.a.1") && !w.Paused("jobs.b.1"), "Paused: %t, %t", w.Paused("jobs.a.1"), w.Paused("jobs.b.1"))
			found, err := c.Pauses(t.Context())
			check.That(t, err == nil && len(found) == 1 && found[0].By == "ada" && found[0].Pattern == pause.Pattern, "%+v, %v", found, err)
			ended := time.Now()
			if test.until == 0 {
				was := check.Must(c.Resume(t.Context(), "jobs.a.>"))(t)
				check.Equal(t, was, true, "it was paused")
			} else {
				natstest.Pass(time.Until(pause.Until) - time.Millisecond)
				check.Equal(t, len(started), 0, "jobs that started too early")
				ended = time.Now()
			}
			for range 5 {
				info := <-started
				deliveries := 1
				if test.priority == worker.PriorityNormal {
					deliveries = max(info.Deliveries, 2)
				}
				check.That(t, info.Attempt == 1 && info.Deliveries == deliveries,
					"attempt %d, delivery %d; want 1, %d", info.Attempt, info.Deliveries, deliveries)
			}
			most := 5 * time.Second
			if test.priority == worker.PriorityNormal {
				most += 2 * time.Minute // as long as the pause lasted
			}
			within(t, "the start after the pause", time.Since(ended), 0, most)
			natstest.Pass(heartbeats)
			check.Equal(t, b.paused.Load(), 0, "patterns paused after the end")
			check.That(t, !w.Paused("jobs.a.1"), "a subject is paused after the end")
		})
	}
}

// makeAssets makes the streams and consumers of a worker, as an operator does before.
func makeAssets(t *testing.T, b *bundle) {
	t.Helper()
	cfg := b.config(t)
	cfg.Consumer = "first"
	w := check.Must(worker.New(b.js, cfg))(t)
	check.OK(t, worker.Handle(w, "jobs.none", worker.Policy{}, complete))
	r := start(t, w)
	natstest.Pass(heartbeats)
	check.OK(t, r.wait())
	check.OK(t, b.js.DeleteConsumer(t.Context(), stream, "first"))
}

// TestPausedOrderedJobsKeepTheirOrder pauses between jobs of one subject that wait for each other.
func TestPausedOrderedJobsKeepTheirOrder(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		d := newOrderLog(t)
		run(t, b.js, b.config(t), worker.Policy{Ordered: true}, func(ctx context.Context, job *worker.Job[order]) error {
			d.start(ctx, job)
			natstest.Pass(10 * time.Second)
			d.end(job)
			check.Equal(t, job.Attempt, 1, "attempt")
			return nil
		})
		for range 4 {
			b.publish(t, "jobs.a", `{}`)
		}
		natstest.Pass(15 * time.Second) // the second runs, the others wait for their turn
		for i, long := range []time.Duration{8 * time.Second, 5 * time.Minute} {
			check.OK(t, c.Pause(t.Context(), worker.Pause{Pattern: "jobs.>", Until: time.Now().Add(long)}))
			natstest.Pass(heartbeats)
			b.publish(t, "jobs.a", `{}`)
			natstest.Pass(long - heartbeats - time.Millisecond)
			check.Equal(t, d.ended(), 2+i, "ended") // the one that ran
			natstest.Pass(5 * time.Second)
		}
		natstest.Pass(15 * time.Minute)
		check.Equal(t, d.ended(), 6, "ended")
	})
}

func TestPausesOfManyClients(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		makeAssets(t, b)
		c := client(t, b.js)
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() { check.OK(t, c.Pause(t.Context(), worker.Pause{Pattern: fmt.Sprintf("jobs.%d", i)})) })
		}
		group.Wait()
		all := check.Must(c.Pauses(t.Context()))(t)
		check.Equal(t, len(all), 10, "pauses")
		was, err := c.Resume(t.Context(), "jobs.x")
		check.That(t, !was && err == nil, "Resume of a handler that is not paused: %t, %v", was, err)
		run(t, b.js, b.config(t), worker.Policy{}, complete)
		natstest.Pass(heartbeats)
		for _, p := range []worker.Pause{{Pattern: "jbos.>"}, {Pattern: "jobs..x"}, {Pattern: "jobs.>", Until: time.Now()}} {
			check.That(t, c.Pause(t.Context(), p) != nil, "%+v was accepted", p)
		}
	})
}

// TestPausesThatCannotBe has no worker that would make the bucket.
func TestPausesThatCannotBe(t *testing.T) {
	t.Parallel()
	c := client(t, setup(t, nil).js)
	long := strings.Repeat("x", 2000)
	for _, p := range []worker.Pause{
		{Pattern: "jobs.\xff"},
		{Pattern: long},
		{By: long, Pattern: "a"},
		{Pattern: "a", Until: time.Unix(0, 0)},
		{Pattern: "a", Until: time.Now().AddDate(8000, 0, 0)},
	} {
		err := c.Pause(t.Context(), p)
		check.That(t, err != nil && len(err.Error()) < 600 && !strings.Contains(err.Error(), "missing"), "%.200v", err)
	}
	_, resumed := c.Resume(t.Context(), "jobs.x")
	_, listed := c.Pauses(t.Context())
	for _, err := range []error{resumed, listed, c.Pause(t.Context(), worker.Pause{Pattern: "jobs.x"})} {
		missing, ok := errors.AsType[*worker.MissingError](err)
		check.That(t, ok && missing.Asset == "bucket jobs" && strings.Count(err.Error(), "not found") == 1, "%v", err)
	}
}

// TestPausedWorkerIsReady starts workers that have nothing to do but to follow pauses.
func TestPausedWorkerIsReady(t *testing.T) {
	for name, priority := range map[string]worker.Priority{"shared": worker.PriorityNormal, "apart": worker.PriorityLow} {
		runKeyedBubble(t, name, func(t *testing.T, b *bundle) {
			makeAssets(t, b)
			c := client(t, b.js)
			check.OK(t, c.Pause(t.Context(), worker.Pause{Pattern: "jobs.>"}))
			b.publish(t, "jobs.a.1", `{}`)
			_, started := runTwoHandlers(t, b, b.config(t), priority)
			natstest.Pass(time.Minute)
			check.Equal(t, len(started), 0, "started")
			check.OK(t, check.Err(c.Resume(t.Context(), "jobs.>")))
			info := <-started
			check.That(t, info.Deliveries == 1, "delivery %d, want 1", info.Deliveries)
		})
	}
}

// TestDrainedWorker drains one of two workers, which has two consumers or one: it finishes its running jobs, and the other takes the
// rest.
func TestDrainedWorker(t *testing.T) {
	for name, priority := range map[string]worker.Priority{"shared": worker.PriorityNormal, "apart": worker.PriorityLow} {
		runKeyedBubble(t, name, func(t *testing.T, b *bundle) {
			makeAssets(t, b)
			_, first := runTwoHandlers(t, b, b.config(t), priority)
			one := inspected(t, b.js)
			got := check.Must(inspect.Drain(t.Context(), b.js, one.Instance))(t)
			check.That(t, got.Drained && got.Ready && got.Instance == one.Instance, "%+v", got)
			for range 3 {
				b.publish(t, "jobs.a.1", `{}`) // which its last request may still bring
				b.publish(t, "jobs.b.1", `{}`)
			}
			natstest.Pass(time.Minute)
			check.Require(t, len(first) == 0 && b.storedMessages(t) == 6, "a drained worker started %d jobs, and %d are left", len(first), b.storedMessages(t))
			_, second := runTwoHandlers(t, b, b.config(t), priority)
			for range 6 {
				info := <-second
				check.That(t, info.Attempt == 1 && info.Deliveries <= 2, "attempt %d, delivery %d; want 1, and 2 at most", info.Attempt,
					info.Deliveries)
			}
			check.Equal(t, len(first), 0, "jobs that the drained worker started")
			all, err := inspect.Workers(t.Context(), b.js)
			check.OK(t, err)
			for _, info := range all { // the other one now
				if info.Instance != one.Instance {
					check.OK(t, check.Err(inspect.Drain(t.Context(), b.js, info.Instance)))
				}
			}
			natstest.Pass(heartbeats)
			got, err = inspect.Resume(t.Context(), b.js, one.Instance)
			check.That(t, err == nil && !got.Drained, "%+v, %v", got, err)
			resumed := time.Now()
			b.publish(t, "jobs.a.1", `{}`)
			check.Equal(t, (<-first).Subject, "jobs.a.1", "the job that started")
			within(t, "resuming", time.Since(resumed), 0, ackWait/3)
			for _, bad := range []string{"none", "a.b", ""} {
				check.That(t, check.Err(inspect.Drain(t.Context(), b.js, bad)) != nil, "%q was drained", bad)
			}
		})
	}
}

// TestDrainedWorkerFinishesWhatRuns drains a worker in the midst of a job, while another waits in it for that one.
func TestDrainedWorkerFinishesWhatRuns(t *testing.T) {
	keyedBubble(t, func(t *testing.T, b *bundle) {
		began := make(chan struct{}, 9)
		run(t, b.js, b.config(t), worker.Policy{Ordered: true}, func(context.Context, *worker.Job[order]) error {
			began <- struct{}{}
			natstest.Pass(time.Minute)
			return nil
		})
		for range 2 {
			b.publish(t, "jobs.a", `{}`)
		}
		<-began
		natstest.Pass(heartbeats)
		got, err := inspect.Drain(t.Context(), b.js, inspected(t, b.js).Instance)
		check.That(t, err == nil && got.Running == 1, "%+v, %v", got, err)
		check.Equal(t, (<-b.settled).Outcome, worker.OutcomeCompleted, "the outcome of the running job")
		check.Equal(t, (<-b.settled).Outcome, worker.OutcomePaused, "the outcome of the waiting job")
		natstest.Pass(5 * time.Minute)
		check.Equal(t, len(began), 0, "jobs that began")
		check.Equal(t, b.storedMessages(t), 1, "jobs left")
		check.OK(t, check.Err(inspect.Resume(t.Context(), b.js, got.Instance)))
		<-began
		check.Equal(t, (<-b.settled).Outcome, worker.OutcomeCompleted, "the outcome of the other")
	})
}
