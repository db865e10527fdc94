package kvlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// holderEnv makes the test binary a process that holds a claim: the address of its server, and the TTL.
const (
	holderEnv = "KVLOCK_TEST_HOLDER"
	ttlEnv    = "KVLOCK_TEST_TTL"
)

// holderMain is the life of such a process. It says "holds", and when its context has ended, how, and what came of its
// Complete.
func holderMain() {
	url := os.Getenv(holderEnv)
	if url == "" {
		return
	}
	err := live(url, func(ctx context.Context, js jetstream.JetStream) error { return hold(ctx, js, os.Stdout) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// live runs f with a connection of its own, for a minute at most.
func live(url string, f func(ctx context.Context, js jetstream.JetStream) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return f(ctx, js)
}

func hold(ctx context.Context, js jetstream.JetStream, out io.Writer) error {
	ttl, err := time.ParseDuration(os.Getenv(ttlEnv))
	if err != nil {
		return err
	}
	if os.Getenv(lockEnv) != "" {
		return holdLock(ctx, js, ttl, out)
	}
	f, err := kvlock.NewFlight(ctx, js, kvlock.Config{Bucket: bucket, ClaimTTL: ttl})
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := f.Begin(ctx, "k", kvlock.BeginOptions{})
	if err != nil {
		return err
	}
	held, stop := c.Keep(ctx, 0)
	defer stop()
	if _, err := fmt.Fprintln(out, "holds"); err != nil {
		return err
	}
	<-held.Done()
	_, err = c.Complete(ctx, []byte("zombie's"), 0)
	_, err = fmt.Fprintf(out, "ended lost: %v, completed lost: %v\n",
		errors.Is(context.Cause(held), kvlock.ErrLost), errors.Is(err, kvlock.ErrLost))
	return err
}

// holder is such a process.
type holder struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startHolder(t *testing.T, url string, ttl time.Duration, env ...string) *holder {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	natstest.OwnGroup(cmd)
	cmd.Env = append(append(os.Environ(), holderEnv+"="+url, ttlEnv+"="+ttl.String()), env...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &holder{cmd: cmd, lines: bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	h.says(t, "holds")
	return h
}

func (h *holder) says(t *testing.T, want string) {
	t.Helper()
	if !h.lines.Scan() || h.lines.Text() != want {
		t.Fatalf("the holder says %q, %v; want %q", h.lines.Text(), h.lines.Err(), want)
	}
}

func listening(t *testing.T) *bed {
	t.Helper()
	return bedOn(t, natstest.Server(t, func(c *natsrun.Config) { c.Listen = true }), kvlock.BucketConfig{Bucket: bucket})
}

func takeOver(t *testing.T, b *bed) *kvlock.Flight {
	t.Helper()
	f := b.flight(t, kvlock.Config{})
	r, err := f.Do(within(t), "k", func(context.Context) ([]byte, error) { return []byte("ours"), nil }, kvlock.DoOptions{})
	if err != nil || r.Outcome != kvlock.Computed || string(r.Value) != "ours" {
		t.Fatalf("got %+v, %v; want a take-over", r, err)
	}
	return f
}

// A holder is killed with -9 while others wait. One of them takes over, long before the claim's TTL, and all get what it
// computes.
func TestHolderIsKilled(t *testing.T) {
	t.Parallel()
	b := listening(t)
	h := startHolder(t, b.srv.URL(), time.Hour)
	var all sync.WaitGroup
	var runs atomic.Int64
	var took time.Time
	fn := func(context.Context) ([]byte, error) {
		took = time.Now()
		runs.Add(1)
		return []byte("ours"), nil
	}
	waiting := make(chan struct{}, 100)
	for range 3 {
		f := b.flight(t, kvlock.Config{Observe: func(_ context.Context, e kvlock.Event) {
			if e.Kind == kvlock.EventWaiting {
				waiting <- struct{}{}
			}
		}})
		for range 10 {
			all.Go(func() {
				if r, err := f.Do(within(t), "k", fn, kvlock.DoOptions{}); err != nil || string(r.Value) != "ours" {
					t.Errorf("got %+v, %v", r, err)
				}
			})
		}
	}
	for range 30 {
		await(t, waiting, "all wait")
	}
	if n := runs.Load(); n != 0 {
		t.Fatalf("computed %d times while it was held", n)
	}
	start := time.Now()
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if n := runs.Load(); n != 1 {
		t.Errorf("computed %d times", n)
	}
	t.Logf("taken over %s after kill -9", took.Sub(start))
}

// A process that is stopped for longer than its TTL wakes up without a claim: its context ends at once, and what it
// completes is refused.
func TestHolderIsStoppedPastItsTTL(t *testing.T) {
	t.Parallel()
	b := listening(t)
	h := startHolder(t, b.srv.URL(), time.Second)
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	f := takeOver(t, b)
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	h.says(t, "ended lost: true, completed lost: true")
	wantSlot(t, f, "k", kvlock.Done, "ours")
}
