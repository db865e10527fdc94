package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
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
	URL     string
}

func workUntilKilled(ctx context.Context, is killedTask) error {
	var policy worker.Policy
	if is.Limited {
		policy = oneAtATime
	}
	return workChild(ctx, is.URL, nil, policy, func(ctx context.Context, job *worker.Job[order]) error {
		sayf("started %d %d", job.Attempt, job.Deliveries)

		<-ctx.Done()

		if lost := (&worker.LimitLostError{}); errors.As(context.Cause(ctx), &lost) {
			sayf("lost %v", lost)
		}
		return ctx.Err()
	})
}

// workChild runs a worker in a process that is no test.
func workChild(ctx context.Context, url string, settled func(worker.Settlement), policy worker.Policy, h worker.Handler[order]) error {
	nc, err := nats.Connect(url, nats.Timeout(patience()))
	if err != nil {
		return err
	}
	defer nc.Close()

	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}

	w, err := worker.New(js, worker.Config{
		AckWait: childAckWait, AutoCreate: true, Consumer: durable, Hooks: worker.Hooks{Settled: settled}, Stream: stream,
	})
	if err != nil {
		return err
	}

	if err := worker.Handle(w, pattern, policy, h); err != nil {
		return err
	}
	return w.Run(ctx)
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

// The modes of a process whose jobs have steps.
const (
	dieAfter = "die after" // it kills itself when its first new step has returned
	freeze   = "freeze"    // its first new step returns when it has been frozen and goes on
)

// stepping are such processes. They print a line with the result of each step that they run, and how the job was settled.
var stepping = crash.Role[steppingTask]{Name: "stepping", Run: workSteps}

type steppingTask struct{ Mode, URL string }

// childSteps are the steps of their jobs.
var childSteps = []string{"a", "b", "c"}

func workSteps(ctx context.Context, is steppingTask) error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	settled := func(s worker.Settlement) {
		sayf("settled %s %t", s.Outcome, errors.Is(s.Err, step.ErrFenced))
		cancel()
	}
	return workChild(ctx, is.URL, settled, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
		for _, name := range childSteps {
			ran := false

			_, err := step.Run(ctx, job, name, func(context.Context) (string, error) {
				ran = true
				result := fmt.Sprintf("%s-%d", name, os.Getpid())
				sayf("ran %s", result)

				if is.Mode == freeze {
					<-continued
				}
				return result, nil
			})
			if err != nil {
				return err
			}

			if ran && is.Mode == dieAfter {
				testbed.Die()
			}
		}
		return nil
	})
}

// sayf prints a line for the parent.
func sayf(format string, args ...any) {
	if _, err := fmt.Fprintf(os.Stdout, format+"\n", args...); err != nil {
		panic(err)
	}
}

// ran waits for the line of a step that is run, and returns its result.
func ran(t *testing.T, p *crash.Process) string {
	t.Helper()

	result, ok := strings.CutPrefix(p.Line(), "ran ")
	check.Require(t, ok, "the process printed %q", p.Output())
	return result
}

// finishSteps works the job to its end in this process. It returns the results of all
// steps, and which of them ran.
func finishSteps(t *testing.T, b *bundle) (results map[string]string, here []string) {
	t.Helper()

	results = map[string]string{}
	run(t, b.js, b.config(t, childTimes), worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
		for _, name := range childSteps {
			result, err := step.Run(ctx, job, name, func(context.Context) (string, error) {
				here = append(here, name)
				return name + "-here", nil
			})
			if err != nil {
				return err
			}

			results[name] = result
		}
		return nil
	})

	ends(t, receive(t, b.settled, "the settlement"), worker.OutcomeCompleted)
	return results, here
}

// TestStepSurvivesAKillTheMomentItReturns runs a job whose process kills itself after its
// first step, then one that does so after the second.
func TestStepSurvivesAKillTheMomentItReturns(t *testing.T) {
	t.Parallel()

	b := withChildren(t, "jobs.1")

	want := map[string]string{"c": "c-here"}

	for _, name := range childSteps[:2] {
		p := stepping.Start(t, steppingTask{Mode: dieAfter, URL: b.srv.URL()})
		want[name] = ran(t, p)

		check.That(t, strings.HasPrefix(want[name], name+"-"), "ran %q, want step %s: those before it are recorded", want[name], name)

		p.Died()
	}

	got, here := finishSteps(t, b)
	check.That(t, fmt.Sprint(got) == fmt.Sprint(want) && fmt.Sprint(here) == "[c]",
		"results %v, want %v; steps %v ran here, want [c]", got, want, here)
}

// TestFrozenProcessRecordsNothing stops a process within a step for longer than AckWait.
func TestFrozenProcessRecordsNothing(t *testing.T) {
	t.Parallel()

	b := withChildren(t, "jobs.1")

	p := stepping.Start(t, steppingTask{Mode: freeze, URL: b.srv.URL()})
	ran(t, p)
	p.Pause()
	got, here := finishSteps(t, b)
	check.That(t, got["a"] == "a-here" && len(here) == len(childSteps), "results %v, steps %v ran here; want all", got, here)

	p.Continue()
	p.Wait()

	for line := range strings.Lines(p.Output()) {
		check.That(t, !strings.HasPrefix(line, "settled") || line == "settled fenced true\n",
			"the process printed %q, want that it was fenced", line)
	}
}
