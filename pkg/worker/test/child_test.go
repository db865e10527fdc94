package test

import (
	"bufio"
	"context"
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
	nc, err := nats.Connect(url)
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

	err = worker.Handle(w, pattern, worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
		if _, err := fmt.Fprintf(os.Stdout, "started %d %d\n", job.Attempt, job.Deliveries); err != nil {
			return err
		}

		<-ctx.Done()

		return ctx.Err()
	})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), patience())
	defer cancel()

	return w.Run(ctx)
}

// startChild runs this test binary as a worker process and returns its lines.
func startChild(t *testing.T, url string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()

	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childURL+"="+url)
	child.Stderr = os.Stderr

	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := child.Start(); err != nil {
		t.Fatal(err)
	}

	return child, bufio.NewScanner(out)
}

// TestKilledProcessLosesNoJob kills worker processes in mid-job. Each time the job must
// run again within two AckWaits. The server's own clock is the measure: a marker that is
// delivered right after the kill, and never answered, is delivered again after exactly
// that time; the job must come first.
func TestKilledProcessLosesNoJob(t *testing.T) {
	t.Parallel()

	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	b := setup(t, srv)

	marks, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MARKS", Subjects: []string{"mark"}})
	if err != nil {
		t.Fatal(err)
	}

	marker, err := marks.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "m", AckWait: 2 * childAckWait})
	if err != nil {
		t.Fatal(err)
	}

	b.publish(t, "jobs.1", `{"n":1}`)

	const kills = 2
	for kill := 1; kill <= kills; kill++ {
		child, lines := startChild(t, srv.URL())
		if !lines.Scan() || lines.Text() != fmt.Sprintf("started %d %d", kill, kill) {
			t.Fatalf("child %d said %q, want that it started attempt %d: a crash uses an attempt", kill, lines.Text(), kill)
		}

		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}

		_ = child.Wait() // the error says that it was killed
	}

	b.publish(t, "mark", "")

	if _, err := marker.Next(); err != nil {
		t.Fatal(err)
	}

	first := make(chan string, 10)
	marking, err := marker.Consume(func(jetstream.Msg) { first <- "mark" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		marking.Stop()
		<-marking.Closed()
	})

	cfg := b.config(t, func(c *worker.Config) { c.AckWait = childAckWait })
	run(t, b.js, cfg, worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
		first <- fmt.Sprintf("attempt %d, delivery %d", job.Attempt, job.Deliveries)

		return nil
	})

	want := fmt.Sprintf("attempt %d, delivery %d", kills+1, kills+1)
	if got := receive(t, first, "the job"); got != want {
		t.Errorf("%s came first, want %s", got, want)
	}
}
