package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/worker"
)

// childURL is the environment variable that makes this test binary a worker process.
const childURL = "WORKER_TEST_CHILD_URL"

// childPoison is the environment variable that makes every job kill the process.
const childPoison = "WORKER_TEST_CHILD_POISON"

// childLimited is the environment variable that has jobs run one at a time.
const childLimited = "WORKER_TEST_CHILD_LIMITED"

// childAckWait is short, since the test that uses it runs in real time.
const childAckWait = time.Second

// childMain is a worker whose handler never ends, when the environment asks for one. It
// prints a line for each start and dies with its parent's patience or by a signal.
func childMain() {
	url := os.Getenv(childURL)
	if url == "" {
		return
	}

	if err := childRun(url); err != nil {
		panic(err)
	}

	os.Exit(0)
}

func childRun(url string) error {
	nc, err := nats.Connect(url, nats.Timeout(patience()))
	if err != nil {
		return err
	}
	defer nc.Close()

	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}

	w, err := worker.New(js, worker.Config{AckWait: childAckWait, AutoCreate: true, Consumer: durable, Stream: stream})
	if err != nil {
		return err
	}

	var policy worker.Policy
	if os.Getenv(childLimited) != "" {
		policy = oneAtATime
	}

	err = worker.Handle(w, pattern, policy, func(ctx context.Context, job *worker.Job[order]) error {
		if _, err := fmt.Fprintf(os.Stdout, "started %d %d\n", job.Attempt, job.Deliveries); err != nil {
			return err
		}

		if os.Getenv(childPoison) != "" {
			return kill()
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

	ctx, cancel := context.WithTimeout(context.Background(), patience())
	defer cancel()

	return w.Run(ctx)
}

// kill ends this process as the kernel does when it is out of memory.
func kill() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}

	return self.Kill()
}

// startChild runs this test binary as a worker process and returns its lines.
func startChild(t *testing.T, url string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()

	child := exec.CommandContext(t.Context(), os.Args[0])
	natstest.OwnGroup(child)
	child.Env = append(append(os.Environ(), childURL+"="+url), env...)
	child.Stderr = t.Output()

	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := child.Start(); err != nil {
		t.Fatal(err)
	}

	return child, bufio.NewScanner(out)
}

// TestKilledProcessLosesNoJob kills worker processes in mid-job. How soon the job runs
// again is TestDeadWorkersJobRunsElsewhereWithinTwoAckWaits, under fake time.
func TestKilledProcessLosesNoJob(t *testing.T) {
	t.Parallel()

	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	b := setup(t, srv)
	b.publish(t, "jobs.1", `{"n":1}`)

	used := 0

	for range 2 {
		child, lines := startChild(t, srv.URL())

		var attempt, delivery int

		lines.Scan()

		_, err := fmt.Sscanf(lines.Text(), "started %d %d", &attempt, &delivery)
		if err != nil || attempt <= used || delivery < attempt {
			t.Fatalf("child said %q, %v, want an attempt after %d: a crash uses one", lines.Text(), err, used)
		}

		used = attempt

		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}

		_ = child.Wait() // the error says that it was killed
	}

	last := make(chan int, 10)
	settled := make(chan worker.Settlement, 10)
	cfg := b.config(t, func(c *worker.Config) {
		c.AckWait = childAckWait
		c.Hooks.Settled = func(s worker.Settlement) { settled <- s }
	})
	run(t, b.js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
		last <- job.Attempt

		return nil
	})

	if attempt := receive(t, last, "the job"); attempt <= used {
		t.Errorf("attempt %d, want one after %d: a crash uses one", attempt, used)
	}

	if s := receive(t, settled, "its settlement"); s.Outcome != worker.OutcomeCompleted || b.left(t) != 0 {
		t.Errorf("%s, %d left; want completed, 0", s.Outcome, b.left(t))
	}
}

// TestPoisonEndsInTheDeadLetters has a job that kills every process that starts it.
func TestPoisonEndsInTheDeadLetters(t *testing.T) {
	t.Parallel()

	const attempts = 2

	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	b := setup(t, srv)
	b.publish(t, "jobs.poison", `{"n":1}`)

	for i := range attempts {
		child, lines := startChild(t, srv.URL(), childPoison+"=1")

		if !lines.Scan() {
			t.Fatalf("child %d did not start the job: %v", i, lines.Err())
		}

		if err := child.Wait(); err == nil {
			t.Fatalf("child %d was not killed", i)
		}
	}

	b.publish(t, "jobs.healthy", `{"n":2}`)

	settled := make(chan worker.Settlement, 10)
	cfg := b.config(t, func(c *worker.Config) {
		c.AckWait = childAckWait
		c.Hooks.Settled = func(s worker.Settlement) { settled <- s }
	})
	run(t, b.js, cfg, worker.Policy{MaxAttempts: attempts}, func(_ context.Context, job *worker.Job[order]) error {
		if job.Subject == "jobs.poison" {
			t.Error("the poison was started once more")
		}

		return nil
	})

	got := make(map[string]worker.Outcome)
	for range 2 {
		s := receive(t, settled, "a settlement")
		got[s.Subject] = s.Outcome
	}

	if got["jobs.poison"] != worker.OutcomeDead || got["jobs.healthy"] != worker.OutcomeCompleted || b.left(t) != 0 {
		t.Errorf("outcomes %v, %d left", got, b.left(t))
	}

	if letters := b.letters(t); len(letters) != 1 || letters[0].Reason != worker.ReasonExhausted || letters[0].Attempts != attempts {
		t.Errorf("letters: %+v", letters)
	}
}
