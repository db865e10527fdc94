package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
)

// childAckWait is short, since the test that uses it runs in real time.
const childAckWait = time.Second

func childTimes(c *worker.Config) { c.AckWait = childAckWait }

// withChildren is setup with a server that child processes can reach, and a job.
func withChildren(t *testing.T, subject string) *bundle {
	t.Helper()
	b := setup(t, natstest.Server(t, func(c *natsrun.Config) { c.Listen = true }))
	b.publish(t, subject, `{"n":1}`)
	return b
}

// killed are worker processes whose handler never ends. They print a line for each start.
var killed = crash.Role[killedTask]{Name: "killed", Run: workUntilKilled}

type killedTask struct {
	Limited bool // jobs run one at a time
	Poison  bool // every job kills the process
	URL     string
}

func workUntilKilled(ctx context.Context, is killedTask) error {
	js, done, err := connectChild(is.URL)
	if err != nil {
		return err
	}
	defer done()

	w, err := worker.New(js, worker.Config{AckWait: childAckWait, AutoCreate: true, Consumer: durable, Stream: stream})
	if err != nil {
		return err
	}

	var policy worker.Policy
	if is.Limited {
		policy = oneAtATime
	}

	err = worker.Handle(w, pattern, policy, func(ctx context.Context, job *worker.Job[order]) error {
		if _, err := fmt.Fprintf(os.Stdout, "started %d %d\n", job.Attempt, job.Deliveries); err != nil {
			return err
		}

		if is.Poison {
			child.Die()
		}

		<-ctx.Done()

		if lost := (&worker.LimitLostError{}); errors.As(context.Cause(ctx), &lost) {
			if _, err := fmt.Fprintln(os.Stdout, "lost", lost); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// connectChild connects a process that is no test.
func connectChild(url string) (js jetstream.JetStream, done func(), err error) {
	nc, err := nats.Connect(url, nats.Timeout(patience()))
	if err != nil {
		return nil, nil, err
	}

	js, err = jetstream.New(nc)
	return js, nc.Close, err
}

// TestKilledProcessLosesNoJob kills worker processes in mid-job. How soon the job runs
// again is TestDeadWorkersJobRunsElsewhereWithinTwoAckWaits, under fake time.
func TestKilledProcessLosesNoJob(t *testing.T) {
	t.Parallel()

	b := withChildren(t, "jobs.1")

	used := 0

	for range 2 {
		p := killed.Start(t, killedTask{URL: b.srv.URL()})
		line := p.Line()

		var attempt, delivery int
		if _, err := fmt.Sscanf(line, "started %d %d", &attempt, &delivery); err != nil || attempt <= used || delivery < attempt {
			t.Fatalf("the process printed %q, %v, want an attempt after %d: a crash uses one", line, err, used)
		}

		used = attempt

		p.Kill()
	}

	last := make(chan int, 10)
	run(t, b.js, b.config(t, childTimes), worker.Policy{}, tell(last, itsAttempt))

	attempt := receive(t, last, "the job")
	check.That(t, attempt > used, "attempt %d, want one after %d: a crash uses one", attempt, used)

	if s := receive(t, b.settled, "its settlement"); s.Outcome != worker.OutcomeCompleted || b.left(t) != 0 {
		t.Errorf("%s, %d left; want completed, 0", s.Outcome, b.left(t))
	}
}

// TestPoisonEndsInTheDeadLetters has a job that kills every process that starts it.
func TestPoisonEndsInTheDeadLetters(t *testing.T) {
	t.Parallel()

	const attempts = 2

	b := withChildren(t, "jobs.poison")

	for range attempts {
		p := killed.Start(t, killedTask{Poison: true, URL: b.srv.URL()})
		p.Await("^started ")
		p.Died()
	}

	b.publish(t, "jobs.healthy", `{"n":2}`)

	run(t, b.js, b.config(t, childTimes), worker.Policy{MaxAttempts: attempts}, func(_ context.Context, job *worker.Job[order]) error {
		check.That(t, job.Subject != "jobs.poison", "the poison was started once more")
		return nil
	})

	got := make(map[string]worker.Outcome)
	for range 2 {
		s := receive(t, b.settled, "a settlement")
		got[s.Subject] = s.Outcome
	}

	if got["jobs.poison"] != worker.OutcomeDead || got["jobs.healthy"] != worker.OutcomeCompleted || b.left(t) != 0 {
		t.Errorf("outcomes %v, %d left", got, b.left(t))
	}

	letters := b.letters(t)
	check.That(t, len(letters) == 1 && letters[0].Reason == worker.ReasonExhausted && letters[0].Attempts == attempts, "letters: %+v", letters)
}
