package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

var server = Role[place]{Name: "NATS server", Run: serve}

// place is the port and the store of a server.
type place struct {
	Dir  string
	Port int // 0 is any
}

func serve(ctx context.Context, at place) error {
	s, err := natsrun.Start(natsrun.Config{Dir: at.Dir, Listen: true, Port: at.Port, ReadyTimeout: Patience})
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	defer s.Stop()
	if _, err := fmt.Fprintln(os.Stdout, s.URL()); err != nil {
		return fmt.Errorf("say that the server is ready: %w", err)
	}
	<-ctx.Done()
	return nil
}

// Server is a single NATS server, without a cluster, in a separate process.
type Server struct {
	*Process

	URL string

	at place
}

// StartServer starts a server on a free port, with its store in a temporary directory, and kills it when the test ends. It
// needs Main.
func StartServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{at: place{Dir: filepath.Join(t.TempDir(), "store")}}
	s.Process = server.Start(t, s.at)
	s.URL = s.Line()
	if _, err := fmt.Sscanf(s.URL, "nats://127.0.0.1:%d", &s.at.Port); err != nil {
		t.Fatalf("a server that is not at %q: %v", s.URL, err)
	}
	return s
}

// Restart kills the server and starts it again at the same address and on the same store.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Process.Process.Kill(); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Start starts the server again, after Kill, at the same address and on the same store.
func (s *Server) Start(ctx context.Context) error {
	p, err := testbed.Start(s.t.Output(), server.Name, s.at)
	if err != nil {
		return fmt.Errorf("start the server again: %w", err)
	}
	s.Process = &Process{Process: p, t: s.t, name: s.name}
	s.t.Cleanup(func() { _ = p.Kill() }) // it is gone, mostly
	_, err = p.Line(ctx)
	return err
}

// Servers are the NATS servers of a test's processes.
type Servers struct {
	// Restart kills the server, or the leader of a stream among three servers, starts it again, and returns when it is ready. It is nil for
	// servers that a test does not restart.
	Restart  func(ctx context.Context, stream string) error
	Replicas int
	URL      string

	cluster *natsrun.Cluster // of ThreeServers
	server  *Server          // of MortalServer
}

// OneServer returns a server without Restart.
func OneServer(t testing.TB) *Servers {
	t.Helper()
	return &Servers{Replicas: 1, URL: StartServer(t).URL}
}

// MortalServer returns a server that Restart kills and starts again.
func MortalServer(t testing.TB) *Servers {
	t.Helper()
	s := StartServer(t)
	return &Servers{Replicas: 1, URL: s.URL, server: s, Restart: func(ctx context.Context, _ string) error { return s.Restart(ctx) }}
}

// ThreeServers returns three nodes of a cluster, each in a separate process.
func ThreeServers(t testing.TB) *Servers {
	t.Helper()
	c := natstest.Cluster(t, 3)
	s := &Servers{Replicas: 3, URL: c.URLs(), cluster: c}
	s.Restart = func(ctx context.Context, stream string) error {
		return s.onLeader(ctx, stream, func(ctx context.Context, leader *natsrun.Node) error {
			return errors.Join(leader.Kill(), leader.Start(ctx))
		})
	}
	return s
}

// onLeader does something to the leader of a stream, and waits until the cluster is ready.
func (s *Servers) onLeader(ctx context.Context, stream string, do func(context.Context, *natsrun.Node) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	leader, err := s.cluster.StreamLeader(ctx, stream)
	if err != nil {
		return fmt.Errorf("find the leader of %s: %w", stream, err)
	}
	return errors.Join(do(ctx, leader), s.cluster.WaitReady(ctx))
}

// Faults are those of servers, which use streams: a server is killed and started again, or frozen for between 1 and 2 times as long as the
// given time. Among three it is the leader of one of the streams, or any of them, and the leader steps down as well. There are none for a
// server of OneServer.
func (s *Servers) Faults(log *Log, long time.Duration, streams ...string) []Fault {
	fault := func(name string, do func(ctx context.Context, r *rand.Rand, stream string) error) Fault {
		return Fault{Name: name, Do: func(ctx context.Context, r *rand.Rand) error {
			return errors.Join(log.Inject(name, ""), do(ctx, r, streams[r.IntN(len(streams))]))
		}}
	}
	frozen := func(ctx context.Context, r *rand.Rand, pause func() error, resume func() error) error {
		err := pause()
		wait(ctx, between(r, long))
		return errors.Join(err, resume())
	}
	switch {
	case s.server != nil:
		return []Fault{
			fault("server killed", func(ctx context.Context, _ *rand.Rand, _ string) error { return s.server.Restart(ctx) }),
			fault("server frozen", func(ctx context.Context, r *rand.Rand, _ string) error {
				p := s.server.Process.Process
				return frozen(ctx, r, func() error { return p.Pause(true) }, func() error { return p.Pause(false) })
			}),
		}
	case s.cluster != nil:
		return []Fault{
			fault("leader killed", func(ctx context.Context, _ *rand.Rand, stream string) error { return s.Restart(ctx, stream) }),
			fault("leader frozen", func(ctx context.Context, r *rand.Rand, stream string) error {
				return s.onLeader(ctx, stream, func(ctx context.Context, leader *natsrun.Node) error {
					return frozen(ctx, r, leader.Pause, leader.Continue)
				})
			}),
			fault("leader deposed", func(ctx context.Context, _ *rand.Rand, stream string) error {
				ctx, cancel := context.WithTimeout(ctx, Patience)
				defer cancel()
				return s.cluster.StepDown(ctx, stream)
			}),
			fault("server killed", func(ctx context.Context, r *rand.Rand, _ string) error {
				ctx, cancel := context.WithTimeout(ctx, Patience)
				defer cancel()
				n := s.cluster.Nodes[r.IntN(len(s.cluster.Nodes))]
				err := n.Kill()
				wait(ctx, between(r, long))
				return errors.Join(err, n.Start(ctx), s.cluster.WaitReady(ctx))
			}),
		}
	}
	return nil
}

// Patience bounds each wait, so that a test that hangs fails. It is far longer than any step, even with the race detector on a busy
// machine: no test depends on it.
const Patience = 3 * time.Minute

// Role is the work of a process that a test starts.
type Role[T any] struct {
	// Name is the name of the role, unique in the test binary.
	Name string

	// Run is the work. ctx ends when the test stops the process, or when the test's process has ended. When Run returns an error, the process
	// writes it to its standard error and exits with 1.
	Run func(ctx context.Context, task T) error
}

// Main runs the role and exits in a process that was started in this role, and returns at once in any other process.
func (r Role[T]) Main() { testbed.Main(r.Name, r.Run) }

// Start starts a process in the role with a task, which is passed as JSON, and kills it when the test ends. The test
// binary gets args; it needs none when Main knows the role. With -short it skips the test.
func (r Role[T]) Start(t testing.TB, task T, args ...string) *Process {
	t.Helper()
	skipShort(t)
	p, err := testbed.Start(t.Output(), r.Name, task, args...)
	return started(t, fmt.Sprintf("%s %+v", r.Name, task), p, err)
}

// Main is natstest.Main for a package with roles.
func Main(m *testing.M, perCore int, roles ...interface{ Main() }) {
	server.Main()
	for _, role := range roles {
		role.Main()
	}
	natstest.Main(m, perCore)
}
