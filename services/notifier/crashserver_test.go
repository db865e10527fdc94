package notifier

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

const serverRole = "server"

// lair is where a server process runs.
type lair struct {
	Dir  string
	Port int
}

// serve is the life of a server process.
func serve(ctx context.Context, at lair) error {
	s, err := natsrun.Start(natsrun.Config{Dir: at.Dir, Port: at.Port, ReadyTimeout: patience})
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

// servers are what the notifiers work on.
type servers struct {
	disturb  func(ctx context.Context) error // nil for servers that are left in peace
	replicas int
	url      string
}

// lone is one server, which nobody kills.
func lone(t *testing.T) *servers {
	t.Helper()
	return &servers{replicas: 1, url: natstest.Server(t, func(c *natsrun.Config) { c.Listen = true }).URL()}
}

// mortal is one server in a process, which is killed and started again with what it had stored.
func mortal(t *testing.T) *servers {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := lair{Dir: t.TempDir(), Port: listener.Addr().(*net.TCPAddr).Port} //nolint:forcetypeassert // it listens on TCP
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
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
	return &servers{replicas: 1, url: fmt.Sprintf("nats://127.0.0.1:%d", at.Port), disturb: func(ctx context.Context) error {
		err := p.Kill()
		if err == nil {
			p, err = start(ctx)
		}
		return err
	}}
}

// three are three servers in processes. The one that leads the rows is killed.
func three(t *testing.T) *servers {
	t.Helper()
	c := natstest.Cluster(t, 3, natstest.Processes)
	return &servers{replicas: 3, url: c.URLs(), disturb: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		leader, err := c.StreamLeader(ctx, contracts.StreamNotifications)
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
	}}
}
