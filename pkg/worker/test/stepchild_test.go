package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// Environment variables that make this test binary a worker process whose jobs have steps.
const (
	stepChildMode = "WORKER_TEST_STEP_CHILD"
	stepChildURL  = "WORKER_TEST_STEP_CHILD_URL"
)

// What such a process does.
const (
	dieAfter  = "die after"  // it kills itself when its first new step has returned
	dieWithin = "die within" // it kills itself within its first new step
	freeze    = "freeze"     // its first new step returns when a line comes
)

// childSteps are the steps of its jobs.
var childSteps = []string{"a", "b", "c"}

func stepChildMain() {
	url := os.Getenv(stepChildURL)
	if url == "" {
		return
	}

	if err := stepChild(url, os.Getenv(stepChildMode)); err != nil {
		panic(err)
	}

	os.Exit(0)
}

// stepChild prints a line with the result of each step that it runs, and how its job was
// settled.
func stepChild(url, mode string) error {
	nc, err := nats.Connect(url, nats.Timeout(patience()))
	if err != nil {
		return err
	}
	defer nc.Close()

	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), patience())
	defer cancel()

	w, err := worker.New(js, worker.Config{
		AckWait: childAckWait, AutoCreate: true, Consumer: durable, Stream: stream,
		Hooks: worker.Hooks{Settled: func(s worker.Settlement) {
			sayf("settled %s %t", s.Outcome, errors.Is(s.Err, step.ErrFenced))
			cancel()
		}},
	})
	if err != nil {
		return err
	}

	err = worker.Handle(w, pattern, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
		for _, name := range childSteps {
			ran := false

			_, err := step.Run(ctx, job, name, func(context.Context) (string, error) {
				ran = true
				result := fmt.Sprintf("%s-%d", name, os.Getpid())
				sayf("ran %s", result)

				switch mode {
				case dieWithin:
					die()
				case freeze:
					if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
						return "", err
					}
				}

				return result, nil
			})
			if err != nil {
				return err
			}

			if ran && mode == dieAfter {
				die()
			}
		}

		return nil
	})
	if err != nil {
		return err
	}

	return w.Run(ctx)
}

// sayf prints a line for the parent.
func sayf(format string, args ...any) {
	if _, err := fmt.Fprintf(os.Stdout, format+"\n", args...); err != nil {
		panic(err)
	}
}

func die() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// startStepChild runs this test binary as such a process.
func startStepChild(t *testing.T, url, mode string) (*exec.Cmd, *bufio.Scanner, io.Writer) {
	t.Helper()

	child := exec.CommandContext(t.Context(), os.Args[0])
	natstest.OwnGroup(child)
	child.Env = append(os.Environ(), stepChildURL+"="+url, stepChildMode+"="+mode)
	child.Stderr = t.Output()

	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := child.Start(); err != nil {
		t.Fatal(err)
	}

	return child, bufio.NewScanner(out), in
}

// ran waits for the line of a step that is run, and returns its result.
func ran(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()

	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "ran ") {
		t.Fatalf("child said %q, %v", lines.Text(), lines.Err())
	}

	return strings.TrimPrefix(lines.Text(), "ran ")
}

// finishSteps works the job to its end in this process. It returns the results of all
// steps, and which of them ran.
func finishSteps(t *testing.T, b *bundle) (results map[string]string, here []string) {
	t.Helper()

	results = map[string]string{}
	settled := make(chan worker.Settlement, 10)
	cfg := b.config(t, func(c *worker.Config) {
		c.AckWait = childAckWait
		c.Hooks.Settled = func(s worker.Settlement) { settled <- s }
	})
	run(t, b.js, cfg, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
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

	if s := receive(t, settled, "the settlement"); s.Outcome != worker.OutcomeCompleted {
		t.Fatalf("%s: %v", s.Outcome, s.Err)
	}

	return results, here
}

// TestStepSurvivesAKillTheMomentItReturns runs a job whose process kills itself after its
// first step, then one that does so after the second.
func TestStepSurvivesAKillTheMomentItReturns(t *testing.T) {
	t.Parallel()

	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	b := setup(t, srv)
	b.publish(t, "jobs.1", `{}`)

	want := map[string]string{"c": "c-here"}

	for _, name := range childSteps[:2] {
		child, lines, _ := startStepChild(t, srv.URL(), dieAfter)
		want[name] = ran(t, lines)

		if !strings.HasPrefix(want[name], name+"-") {
			t.Errorf("ran %q, want step %s: those before it are recorded", want[name], name)
		}

		_ = child.Wait() // the error says that it was killed
	}

	got, here := finishSteps(t, b)
	if fmt.Sprint(got) != fmt.Sprint(want) || fmt.Sprint(here) != "[c]" {
		t.Errorf("results %v, want %v; steps %v ran here, want [c]", got, want, here)
	}
}

func TestStepRunsAgainAfterAKillWithinIt(t *testing.T) {
	t.Parallel()

	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	b := setup(t, srv)
	b.publish(t, "jobs.1", `{}`)

	for range 2 {
		child, lines, _ := startStepChild(t, srv.URL(), dieWithin)
		if result := ran(t, lines); !strings.HasPrefix(result, "a-") {
			t.Errorf("ran %q, want step a: nothing is recorded", result)
		}

		_ = child.Wait() // the error says that it was killed
	}

	if got, here := finishSteps(t, b); got["a"] != "a-here" || len(here) != len(childSteps) {
		t.Errorf("results %v, steps %v ran here; want all", got, here)
	}
}

// TestFrozenProcessRecordsNothing stops a process within a step for longer than AckWait.
func TestFrozenProcessRecordsNothing(t *testing.T) {
	t.Parallel()

	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	b := setup(t, srv)
	b.publish(t, "jobs.1", `{}`)

	child, lines, in := startStepChild(t, srv.URL(), freeze)
	ran(t, lines)

	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	got, here := finishSteps(t, b)
	if got["a"] != "a-here" || len(here) != len(childSteps) {
		t.Errorf("results %v, steps %v ran here; want all", got, here)
	}

	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}

	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "settled") && lines.Text() != "settled fenced true" {
			t.Errorf("child said %q, want that it was fenced", lines.Text())
		}
	}

	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}
