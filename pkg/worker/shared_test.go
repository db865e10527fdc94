package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// shared runs a test with a stream that is not a work queue.
func shared(t *testing.T, retention jetstream.RetentionPolicy, test func(t *testing.T, b *bundle)) {
	t.Helper()
	cfg := worker.StreamConfig(stream, pattern)
	cfg.Retention = retention
	natstest.RunBubble(t, retention.String(), func(t *testing.T, srv *natsrun.Server) { test(t, setupWith(t, srv, cfg)) })
}

// consumer runs a worker with its own consumer.
func (b *bundle) consumer(t *testing.T, name string, h worker.Handler[order]) {
	t.Helper()
	run(t, b.js, b.config(t, func(c *worker.Config) { c.Consumer, c.ID = name, "w-"+name }), worker.Policy{Jitter: -1}, h)
	<-b.ready
}

func TestCancelLeavesTheJobsOfOtherReaders(t *testing.T) {
	for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.InterestPolicy} {
		shared(t, retention, func(t *testing.T, b *bundle) {
			c := client(t, b.js)
			ended := make(chan error, 10)
			hold := func(ctx context.Context, _ *worker.Job[order]) error {
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return ctx.Err()
			}
			b.consumer(t, "kitchen", hold)
			receipts := []worker.Receipt{insert(t, c, worker.NewJob{Subject: "jobs.a"}), insert(t, c, unique("b", 1, time.Hour))}
			if retention == jetstream.LimitsPolicy { // the server keeps no delayed job where no consumer wants its schedule
				firing := unique("d", 1, time.Hour)
				firing.Delay = 2*time.Second + 200*time.Millisecond
				receipts = append(receipts, insert(t, c, firing), insert(t, c, worker.NewJob{Delay: time.Hour, Subject: "jobs.c"}))
			}
			natstest.Pass(2 * time.Second)
			messages := b.storedMessages(t)
			try := func(want ...string) {
				t.Helper()
				for _, r := range receipts {
					_, err := c.Cancel(t.Context(), worker.JobRef{ID: r.ID, Sequence: r.Sequence, Subject: r.Subject})
					refused, ok := errors.AsType[*worker.SharedError](err)
					check.Require(t, ok, "Cancel of %s: %v, want it refused", r.Subject, err)
					check.Equal(t, refused.Consumers, want)
				}
			}
			try("kitchen") // another may come at any time
			b.makeConsumer(t, "audit", "")
			try("audit", "kitchen")
			check.Equal(t, b.storedMessages(t), messages, "messages")
			check.Equal(t, len(ended), 0, "handlers that have ended")
		})
	}
}

// TestEachConsumerHasItsOwnState: of three jobs the consumers are at different points. Readers that acknowledge nothing, and those to which
// a job is not delivered, do not count.
func TestEachConsumerHasItsOwnState(t *testing.T) {
	shared(t, jetstream.LimitsPolicy, func(t *testing.T, b *bundle) {
		c := client(t, b.js)
		does := func(dies, fails int) worker.Handler[order] {
			return func(ctx context.Context, job *worker.Job[order]) error {
				switch job.Args.N {
				case dies:
					return worker.Discard(errors.New("no"))
				case fails:
					natstest.Pass(4 * time.Second)
					return worker.Retry(time.Hour, errors.New("not yet"))
				case 3:
					check.OK(t, job.Progress(ctx, nil))
					<-ctx.Done()
				}
				return nil
			}
		}
		b.consumer(t, "kitchen", does(1, 0))
		b.consumer(t, "audit", does(2, 1))
		insert(t, c, worker.NewJob{Args: order{N: 1}, Subject: "jobs.one"})
		insert(t, c, worker.NewJob{Args: order{N: 2}, Subject: "jobs.two"})
		insert(t, c, worker.NewJob{Args: order{N: 3}, Subject: "jobs.three"})
		b.awaitSettled(4)
		check.OK(t, check.Err(b.js.OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{})))
		check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverNewPolicy, Durable: "new",
		})))
		insert(t, c, worker.NewJob{Args: order{N: 4}, Subject: "jobs.four"})
		b.awaitSettled(2)
		natstest.Pass(5 * time.Second)

		type at map[string]worker.State
		want := map[string]at{
			"jobs.one":   {"kitchen": worker.StateDead, "audit": worker.StateRetrying},
			"jobs.two":   {"kitchen": worker.StateDone, "audit": worker.StateDead},
			"jobs.three": {"kitchen": worker.StateRunning, "audit": worker.StateRunning},
			"jobs.four":  {"kitchen": worker.StateDelivered, "audit": worker.StateDelivered, "new": worker.StateQueued},
		}
		lead := map[string]worker.State{
			"one": worker.StateRetrying, "two": worker.StateDead, "three": worker.StateRunning, "four": worker.StateDelivered,
		}
		listed := all(t, c, worker.JobFilter{})
		check.Equal(t, states(listed), lead)
		for _, j := range listed {
			for _, j := range []worker.StoredJob{j, jobOf(t, c, worker.JobRef{Sequence: j.Sequence})} {
				have := at{}
				for _, as := range j.Each() {
					have[as.Consumer] = as.State
					check.That(t, as.Progress == nil || as.Progress.Worker == "w-"+as.Consumer, "%s at %s: %+v", j.Subject, as.Consumer, as.Progress)
					check.That(t, (as.Error == "not yet") == (as.State == worker.StateRetrying), "%s at %s: error %q", j.Subject, as.Consumer, as.Error)
					check.That(t, (as.DeadLetter != nil) == (as.State == worker.StateDead), "%s at %s: letter %v", j.Subject, as.Consumer, as.DeadLetter)
				}
				check.Equal(t, have, want[j.Subject])
			}
		}
		for state, n := range map[worker.State]int{
			worker.StateDead: 2, worker.StateDone: 1, worker.StateQueued: 1, worker.StateRetrying: 1, worker.StateRunning: 1,
		} {
			check.Equal(t, len(all(t, c, worker.JobFilter{States: []worker.State{state}})), n, "jobs that a consumer has "+string(state))
		}
	})
}

// TestDeadJobsOfOneSubject: each has its letter, not only the last one, and one whose letter was not read is not called done.
func TestDeadJobsOfOneSubject(t *testing.T) {
	shared(t, jetstream.LimitsPolicy, func(t *testing.T, b *bundle) {
		b.consumer(t, "kitchen", func(_ context.Context, job *worker.Job[order]) error {
			if job.Args.N == 2 {
				return nil
			}
			return worker.Discard(errors.New("no"))
		})
		c := client(t, b.js)
		for n := range 4 {
			insert(t, c, worker.NewJob{Args: order{N: n}, Subject: "jobs.one"})
			<-b.settled
		}
		natstest.Pass(time.Second)
		states := func() (s []worker.State) {
			for _, j := range all(t, c, worker.JobFilter{Subject: "jobs.one"}) {
				s = append(s, j.State)
			}
			return s
		}
		dead := worker.StateDead
		check.Equal(t, []worker.State{dead, dead, worker.StateDone, dead}, states())
		for n := range uint64(1000) {
			letter := worker.DeadLetter{ID: "x", Stream: stream, Subject: "jobs.one", Sequence: 100 + n, Consumer: "kitchen"}
			check.OK(t, check.Err(worker.PublishDeadLetter(t.Context(), b.js, "dead", letter)))
		}
		check.Equal(t, []worker.State{dead, dead, worker.StateDelivered, dead}, states())
	})
}

// TestUniqueJobEndsForEachConsumer: the record of its end at one consumer does not end it for another, whose first attempt failed.
func TestUniqueJobEndsForEachConsumer(t *testing.T) {
	shared(t, jetstream.LimitsPolicy, func(t *testing.T, b *bundle) {
		b.consumer(t, "kitchen", complete)
		attempts := make(chan int, 10)
		b.consumer(t, "audit", func(_ context.Context, job *worker.Job[order]) error {
			attempts <- job.Attempt
			if job.Attempt == 1 {
				return worker.Retry(time.Minute, errors.New("not yet"))
			}
			return nil
		})
		insert(t, client(t, b.js), unique("a", 1, time.Hour))
		b.awaitSettled(3)
		check.Equal(t, len(attempts), 2, "attempts")
	})
}
