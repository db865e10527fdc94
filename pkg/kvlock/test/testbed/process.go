package testbed

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// holderEnv makes the test binary a process that holds something: the address of its server, and the TTL.
const (
	holderEnv = "KVLOCK_TEST_HOLDER"
	ttlEnv    = "KVLOCK_TEST_TTL"
)

// HolderMain is the life of such a process. hold says "holds", and when its context has ended, how, and what came of what
// it did then.
func HolderMain(hold func(ctx context.Context, js jetstream.JetStream, ttl time.Duration, out io.Writer) error) {
	url := os.Getenv(holderEnv)
	if url == "" {
		return
	}
	err := Live(url, func(ctx context.Context, js jetstream.JetStream) error {
		ttl, err := time.ParseDuration(os.Getenv(ttlEnv))
		if err != nil {
			return err
		}
		return hold(ctx, js, ttl, os.Stdout)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Live runs f with a connection of its own, for a minute at most.
func Live(url string, f func(ctx context.Context, js jetstream.JetStream) error) error {
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

// Holder is such a process.
type Holder struct {
	Cmd   *exec.Cmd
	lines *bufio.Scanner
}

// StartHolder starts such a process, and returns when it holds.
func StartHolder(t *testing.T, url string, ttl time.Duration, env ...string) *Holder {
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
	h := &Holder{Cmd: cmd, lines: bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	h.Says(t, "holds")
	return h
}

// Says reads the next line of the process.
func (h *Holder) Says(t *testing.T, want string) {
	t.Helper()
	if !h.lines.Scan() || h.lines.Text() != want {
		t.Fatalf("the holder says %q, %v; want %q", h.lines.Text(), h.lines.Err(), want)
	}
}

// Listening is New with a server that other processes reach.
func Listening(t *testing.T) *Bed {
	t.Helper()
	return On(t, natstest.Server(t, func(c *natsrun.Config) { c.Listen = true }), kvlock.BucketConfig{Bucket: Bucket})
}

// Heap is what this process uses: what is on the heap, and its goroutines' stacks.
func Heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
