package workertest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

// task is what the test passes to a service in a process of its own.
type task struct {
	AckWait  time.Duration
	NATS     string
	Recorder string
}

// role is that of the services of a test: its name without that of the scenario.
func role(t *testing.T) string {
	t.Helper()

	name, _, _ := cutLast(t.Name(), "/")
	return name
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// serveIfChild runs the service and ends the process, if the process was started to be the service of this test.
func serveIfChild(t *testing.T, suite Suite) {
	t.Helper()

	child.Main(t.Name(), func(ctx context.Context, is task) error {
		nc, err := nats.Connect(is.NATS, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
		if err != nil {
			return fmt.Errorf("connect to %s: %w", is.NATS, err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", is.NATS, err)
		}
		return suite.Service(ctx, Env{
			AckWait: is.AckWait, JS: js, Recorder: newRemote(is.Recorder),
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
	})
}

// offer makes the recorder available to other processes.
func (s *stage) offer() (address string, err error) {
	address, closed, err := listen(s.ctx, s.recorder)
	if err == nil {
		s.clears = append(s.clears, closed)
	}
	return address, err
}

// spawn starts the service in a process of its own.
func (s *stage) spawn(recorder string) (*child.Process, error) {
	only := strings.Split(s.role, "/")
	for i, part := range only {
		only[i] = "^" + regexp.QuoteMeta(part) + "$"
	}

	p, err := child.Start(s.t.Output(), s.role, task{AckWait: s.ackWait, NATS: s.srv.URL(), Recorder: recorder},
		"-test.run="+strings.Join(only, "/"), "-test.count=1")
	if err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}

	s.clears = append(s.clears, func() { _ = p.Kill() }) //nolint:errcheck // it is gone, mostly
	return p, nil
}
