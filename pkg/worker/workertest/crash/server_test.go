package crash

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

const (
	patience   = 2 * time.Minute
	serverRole = "server"
)

// place is where a server process runs.
type place struct {
	Dir  string
	Port int
}

// serve is the life of a server process.
func serve(ctx context.Context, p place) error {
	s, err := natsrun.Start(natsrun.Config{Dir: p.Dir, Port: p.Port, ReadyTimeout: patience})
	if err != nil {
		return err
	}
	defer s.Stop()

	if _, err := fmt.Fprintln(os.Stdout, "ready"); err != nil {
		return err
	}

	<-ctx.Done()

	return nil
}

// servers are what the jobs are on.
type servers struct {
	disturb  func(ctx context.Context, stream string) error // nil for servers that are left in peace
	js       jetstream.JetStream
	replicas int
	url      string
}

// alone starts one server in a process of its own.
func alone(t *testing.T, killed bool) *servers {
	t.Helper()

	at := place{Dir: t.TempDir(), Port: freePort(t)}

	start := func(ctx context.Context) (*child.Process, error) {
		p, err := child.Start(t.Output(), serverRole, at)
		if err == nil {
			_, err = p.Line(ctx)
		}

		return p, err
	}

	p, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})

	s := &servers{replicas: 1, url: fmt.Sprintf("nats://127.0.0.1:%d", at.Port)}
	_, s.js = natstest.ConnectURL(t, s.url)

	if killed {
		s.disturb = func(ctx context.Context, _ string) (err error) {
			if err = p.Kill(); err == nil {
				p, err = start(ctx)
			}

			return err
		}
	}

	return s
}

// three starts a cluster whose nodes are processes. The leader of the jobs is killed.
func three(t *testing.T) *servers {
	t.Helper()

	c := natstest.Cluster(t, 3, natstest.Processes)
	s := &servers{replicas: 3, url: c.URLs()}
	_, s.js = natstest.ConnectURL(t, s.url)
	s.disturb = func(ctx context.Context, stream string) error {
		leader, err := c.StreamLeader(ctx, stream)
		if err == nil {
			err = leader.Kill()
		}

		if err == nil {
			err = leader.Start(ctx)
		}

		if err == nil {
			err = c.WaitReady(ctx)
		}

		return err
	}

	return s
}

func freePort(t *testing.T) int {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("%v is no TCP address", l.Addr())
	}

	return addr.Port
}
