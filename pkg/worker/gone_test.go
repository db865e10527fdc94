package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// runningJob is a worker whose first job runs while something is taken away from under it.
type runningJob struct {
	*bundle

	finish  chan struct{} // ends the first job
	log     events
	run     *running
	started chan string // payloads
}

// until waits for the worker to be ready, or not.
func (g *runningJob) until(ready bool) {
	for is := range g.ready {
		if is == ready {
			return
		}
	}
}

func startRunningJob(t *testing.T, srv *natsrun.Server) *runningJob {
	t.Helper()

	g := &runningJob{bundle: setup(t, srv), finish: make(chan struct{}), started: make(chan string, 100)}
	cfg := g.config(t, func(c *worker.Config) { c.Logger = g.log.logger() })

	g.run = run(t, g.js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
		g.started <- string(job.Data)

		if job.Args.N == 1 {
			<-g.finish
		}
		return nil
	})

	g.publish(t, "jobs.1", `{"n":1}`)
	receive(t, g.started, "the first job")
	return g
}

// TestRecreatedStreamKeepsItsJobs deletes the stream under a running job and makes it
// again. The sequences start over, and no acknowledgement of an old job may take a new one.
func TestRecreatedStreamKeepsItsJobs(t *testing.T) {
	for name, noticed := range map[string]bool{"noticed": true, "at once": false} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			g := startRunningJob(t, srv)

			old := check.Must(g.js.Stream(t.Context(), stream))(t)
			check.OK(t, g.js.DeleteStream(t.Context(), stream))
			if noticed {
				g.until(false)
			}

			check.OK(t, check.Err(g.js.CreateStream(t.Context(), old.CachedInfo().Config)))

			natstest.Pass(time.Second) // no two messages have one time

			// It waits in the new stream, under the sequence of the old one's.
			g.publish(t, "jobs.2", `{"n":2}`)

			got := <-g.started
			check.Require(t, got == `{"n":2}`, "started %s", got)

			s := <-g.settled
			check.That(t, s.Subject == "jobs.2" && s.Outcome == worker.OutcomeCompleted, "%s: %s, want jobs.2 completed", s.Subject, s.Outcome)

			// Another under the sequence of a job that still runs, held by somebody else.
			close(g.finish)

			s = <-g.settled
			check.That(t, s.Subject == "jobs.1" && s.Outcome == worker.OutcomeUnknown, "%s: %s, want jobs.1 unknown", s.Subject, s.Outcome)

			check.Equal(t, g.storedMessages(t), 0, "messages left")
		})
	}
}

// TestClosedConnectionEndsRun closes the connection under a running job.
func TestClosedConnectionEndsRun(t *testing.T) {
	t.Parallel()

	g := startRunningJob(t, nil)

	g.nc.Close()
	close(g.finish)

	check.ErrorIs(t, g.run.refuses(), nats.ErrConnectionClosed)

	s := receive(t, g.settled, "the job's end")
	check.That(t, s.Outcome == worker.OutcomeUnknown && g.log.count(worker.EventJobUnknown) != 0, "%s, want unknown, and an event", s.Outcome)

	// The job is there, and runs again elsewhere.
	again := make(chan *worker.Job[order], 1)
	_, js := natstest.Connect(t, g.srv)
	run(t, js, g.config(t), worker.Policy{}, sendEach(again, wholeJob))

	check.Equal(t, receive(t, again, "the job, elsewhere").Deliveries, 2, "delivery")
}

// TestLostBucketCostsAttemptsAndNoJob deletes the bucket while jobs are snoozed.
func TestLostBucketCostsAttemptsAndNoJob(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		attempts := make(chan int, 10)

		var log events

		cfg := b.config(t, func(c *worker.Config) { c.Logger = log.logger() })
		run(t, b.js, cfg, worker.Policy{MaxAttempts: 3}, func(_ context.Context, job *worker.Job[order]) error {
			attempts <- job.Attempt

			if job.Deliveries < 3 {
				return worker.Snooze(time.Second)
			}
			return nil
		})
		<-b.ready

		check.OK(t, b.js.DeleteStream(t.Context(), "KV_jobs"))

		b.publish(t, "jobs.1", `{}`)

		for range 3 {
			<-attempts
		}

		b.drain(t)

		n := log.count(worker.EventUncountedFailed)
		check.That(t, n != 0, "no event reports that the bucket is missing")

		check.Equal(t, len(b.deadLetters(t)), 0, "dead letters")
	})
}
