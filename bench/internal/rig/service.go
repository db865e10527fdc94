package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

// Service is what contestants run on: one process, or three.
type Service struct {
	Address string

	processes []*Process
	end       func(*Process) // for one that does not end with its input
}

// Stop ends it, and waits until it has.
func (s *Service) Stop() {
	var ending sync.WaitGroup
	for _, p := range s.processes {
		ending.Go(func() {
			if s.end != nil {
				s.end(p)
			}
			p.End()
		})
	}
	ending.Wait()
}

// ProcessorTime is what its processes have spent.
func (s *Service) ProcessorTime() (sum time.Duration) {
	for _, p := range s.processes {
		sum += processorTime(p.PID())
	}
	return sum
}

// ResidentBytes is the memory of its processes.
func (s *Service) ResidentBytes() (sum int64) {
	for _, p := range s.processes {
		sum += p.ResidentBytes()
	}
	return sum
}

// ResetPeak makes the peaks of its processes what they have now.
func (s *Service) ResetPeak() {
	for _, p := range s.processes {
		p.ResetPeak()
	}
}

// PeakBytes is the most memory that each of its processes had since ResetPeak, added up.
func (s *Service) PeakBytes() (sum int64) {
	for _, p := range s.processes {
		sum += p.PeakBytes()
	}
	return sum
}

// ports returns n free ports.
func ports(n int) ([]int, error) {
	free := make([]int, n)
	for i := range free {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()                        //nolint:errcheck // held until all are found
		free[i] = l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is TCP
	}
	return free, nil
}

// StartNATS starts one server, or several that are a cluster, as deployed or syncing before every acknowledgement.
func StartNATS(n int, always bool) Starter {
	return func(ctx context.Context, dir string) (*Service, error) { return startNATS(ctx, dir, n, always) }
}

func startNATS(ctx context.Context, dir string, n int, always bool) (_ *Service, err error) {
	free, err := ports(2 * n)
	if err != nil {
		return nil, err
	}
	s := &Service{}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	var routes, clients []string
	for i := range n {
		clients = append(clients, fmt.Sprintf("nats://127.0.0.1:%d", free[2*i]))
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", free[2*i+1]))
	}
	for i := range n {
		one := node{Name: fmt.Sprintf("n%d", i+1), Dir: filepath.Join(dir, fmt.Sprintf("n%d", i+1)), Port: free[2*i], Always: always}
		if n > 1 {
			one.Route, one.Routes = free[2*i+1], routes
		}
		p, err := StartTask(nodeRole, one)
		if err != nil {
			return nil, err
		}
		s.processes = append(s.processes, p)
	}
	for _, p := range s.processes {
		if _, err := p.Line(ctx); err != nil {
			return nil, err
		}
	}
	s.Address = strings.Join(clients, ",")
	return s, nil
}

// StartRedis starts a Redis that keeps on disk what args say, nothing without.
func StartRedis(args ...string) Starter {
	return func(ctx context.Context, dir string) (*Service, error) {
		path, err := find("redis-server")
		if err != nil {
			return nil, err
		}
		free, err := ports(1)
		if err != nil {
			return nil, err
		}
		all := append([]string{
			"--port", fmt.Sprint(free[0]), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--maxclients", "20000",
		}, args...)
		cmd := exec.Command(path, all...) //nolint:gosec,noctx // ended by its owner
		return startForeign(ctx, cmd, fmt.Sprintf("127.0.0.1:%d", free[0]), (*Process).Kill)
	}
}

// StartEtcd starts an etcd.
func StartEtcd(ctx context.Context, dir string) (*Service, error) {
	path, err := find("etcd")
	if err != nil {
		return nil, err
	}
	free, err := ports(2)
	if err != nil {
		return nil, err
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", free[0]), fmt.Sprintf("http://127.0.0.1:%d", free[1])
	cmd := exec.Command(path, "--name", "bench", "--data-dir", dir, "--listen-client-urls", client, //nolint:gosec,noctx // ended by its owner
		"--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "bench="+peer, "--log-level", "error")
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH) // else it refuses some
	return startForeign(ctx, cmd, fmt.Sprintf("127.0.0.1:%d", free[0]), (*Process).Kill)
}

// startForeign starts a server that does not say when it is ready, nor ends with its input.
func startForeign(ctx context.Context, cmd *exec.Cmd, address string, end func(*Process)) (*Service, error) {
	started, err := child.Command(io.Discard, cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &Process{started}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return &Service{Address: address, end: end, processes: []*Process{p}}, conn.Close()
		}
		select {
		case <-p.Gone:
			return nil, fmt.Errorf("%s ended: %s", cmd.Path, p.Said())
		case <-ctx.Done():
			p.Kill()
			return nil, errors.Join(fmt.Errorf("%s does not listen: %w: %s", cmd.Path, ctx.Err(), p.Said()), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// nodeRole is that of a NATS server. It reads its node, as JSON.
const nodeRole = "node"

// maxStore is what a server lets streams reserve in memory, and on disk, in bytes.
const maxStore = 8 << 30

// node is one NATS server.
type node struct {
	Name   string
	Dir    string
	Port   int
	Route  int      // port for the other nodes; 0 for a server alone
	Routes []string // of all nodes
	Always bool     // sync to disk before every acknowledgement; else every second, as deployed
}

// NodeMain is the life of a server, if this process is to be one: until its standard input ends.
func NodeMain() { ChildMain(nodeRole, serve) }

func serve(_ context.Context, n node) error {
	cfg := natsrun.Config{Dir: n.Dir, Port: n.Port, ReadyTimeout: time.Minute, ServerName: n.Name}
	natsrun.ChangeOptions(&cfg, n.apply)
	srv, err := natsrun.Start(cfg)
	if err != nil {
		return err
	}
	defer srv.Stop()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (n node) apply(o *server.Options) {
	o.SyncAlways = n.Always
	o.JetStreamMaxMemory, o.JetStreamMaxStore = maxStore, maxStore
	if n.Route == 0 {
		return
	}
	o.Cluster.Name, o.Cluster.Host, o.Cluster.Port = "bench", "127.0.0.1", n.Route
	for _, route := range n.Routes {
		u, err := url.Parse(route)
		if err != nil {
			panic(err) // we wrote it
		}
		o.Routes = append(o.Routes, u)
	}
}

// Starter starts a service that keeps its files in a folder of its own.
type Starter func(ctx context.Context, dir string) (*Service, error)

// Stand is what contestants run on, and what became of them.
type Stand struct {
	Skipped  map[string]string // the contestants that do not take part, and why
	Failures []string

	dir      string
	running  map[string]*Service
	starters map[string]Starter
}

// NewStand returns a stand on which nothing runs yet.
func NewStand(starters map[string]Starter) (*Stand, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // a server may run as another user
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return &Stand{Skipped: map[string]string{}, dir: dir, running: map[string]*Service{}, starters: starters}, nil
}

// Close ends everything and removes its files.
func (s *Stand) Close() {
	for _, running := range s.running {
		running.Stop()
	}
	_ = os.RemoveAll(s.dir) //nolint:errcheck // temporary
}

// Service returns a service, which is started when it is asked for first.
func (s *Stand) Service(ctx context.Context, name string) (*Service, error) {
	if s.running[name] == nil {
		dir := filepath.Join(s.dir, strings.ReplaceAll(name, ", ", "-"))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder: %w", err)
		}
		running, err := s.starters[name](ctx, dir)
		if err != nil {
			return nil, err
		}
		s.running[name] = running
	}
	return s.running[name], nil
}

// Enter lets somebody take part, unless what it needs is not installed.
func (s *Stand) Enter(ctx context.Context, who string, enter func(context.Context) error, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := enter(ctx)
	if errors.Is(err, ErrMissing) {
		s.Skipped[who] = err.Error()
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	return nil
}

// Try runs a row by a contestant. One that fails is told, and does not end the others.
func (s *Stand) Try(
	ctx context.Context, row, who string, got Results, limit time.Duration, measure func(context.Context) (Figures, error),
) error {
	runtime.GC()
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f, err := measure(try)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		s.Failures = append(s.Failures, fmt.Sprintf("%s/%s: %v", row, who, err))
		fmt.Fprintln(os.Stderr, s.Failures[len(s.Failures)-1])
	}
	got.Add(who, f)
	return nil
}

// Turn is whose turn it is in a round: every other round goes through them backwards.
func Turn(round, i, n int) int {
	if round%2 == 1 {
		return n - 1 - i
	}
	return i
}
