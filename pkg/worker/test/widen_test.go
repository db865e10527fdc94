package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// handleAll starts a worker that sends the subject of each job that it completes to worked.
func handleAll(t *testing.T, b *bundle, worked chan<- string, patterns ...string) *running {
	t.Helper()

	w, err := worker.New(b.js, b.config(t, func(c *worker.Config) {
		c.Hooks.Settled = func(s worker.Settlement) {
			if s.Outcome == worker.OutcomeCompleted {
				worked <- s.Subject
			}
		}
	}))
	check.OK(t, err)

	for _, p := range patterns {
		check.OK(t, worker.Handle(w, p, worker.Policy{}, complete))
	}
	return start(t, w)
}

// TestNewPatternTakesTheJobsThatWereThereBefore gives a worker one more pattern, whose jobs
// lie between those that its consumer has delivered. A consumer that is only told of the
// pattern passes over them: one server keeps them and delivers them never, three delete them.
func TestNewPatternTakesTheJobsThatWereThereBefore(t *testing.T) {
	for name, patterns := range map[string][]string{
		"added": {"jobs.a", "jobs.b"}, "wider": {"jobs.*"}, "instead": {"jobs.b"},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				b := setup(t, srv)
				worked := make(chan string, 10)

				for range 2 {
					b.publish(t, "jobs.b", `{}`)
					b.publish(t, "jobs.a", `{}`)
				}

				older := handleAll(t, b, worked, "jobs.a")

				for range 2 {
					check.Same(t, "worked", receive(t, worked, "the jobs that have a handler"), "jobs.a")
				}

				check.OK(t, older.wait())

				handleAll(t, b, worked, patterns...)

				for range 2 {
					check.Same(t, "worked", receive(t, worked, "the jobs that have got a handler"), "jobs.b")
				}
			})
		})
	}
}

// TestNewPatternRepeatsNoJobOfAStreamThatKeepsThem gives the worker of a stream that is no work
// queue one more pattern. Nothing but its consumer knows there which jobs were worked.
func TestNewPatternRepeatsNoJobOfAStreamThatKeepsThem(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := &bundle{srv: srv}
		b.nc, b.js = natstest.Connect(t, srv)

		check.OK(t, check.Err(b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{pattern}})))

		worked := make(chan string, 10)
		older := handleAll(t, b, worked, "jobs.a")

		b.publish(t, "jobs.a", `{}`)
		receive(t, worked, "the first job")

		check.OK(t, older.wait())

		handleAll(t, b, worked, "jobs.a", "jobs.b")
		pass(time.Second)
		b.publish(t, "jobs.b", `{}`)

		check.Same(t, "worked", receive(t, worked, "the next job"), "jobs.b")

		pass(time.Minute)

		if len(worked) != 0 {
			t.Errorf("worked %s once more", <-worked)
		}
	})
}

// TestOlderWorkerLeavesTheConsumerOfANewerOneAsItIs has two versions of a worker share a
// consumer, which the newer one makes again for a pattern that the older one does not have.
func TestOlderWorkerLeavesTheConsumerOfANewerOneAsItIs(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		older, newer := make(chan string, 10), make(chan string, 10)

		handleAll(t, b, older, "jobs.a")
		b.publish(t, "jobs.a", `{}`)
		receive(t, older, "the older worker")

		_, js := natstest.Connect(t, srv)
		handleAll(t, &bundle{js: js, nc: b.nc, srv: srv}, newer, "jobs.a", "jobs.b")
		pass(time.Second) // in which the older one finds the consumer again

		for n := range 5 {
			b.publish(t, "jobs.b", `{}`)

			check.Same(t, fmt.Sprintf("%d: the newer worker worked", n), receive(t, newer, "the newer worker"), "jobs.b")
		}
	})
}
