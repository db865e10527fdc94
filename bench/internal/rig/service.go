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
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
)

// Service is the server of contestants: one process, or three.
type Service struct {
	Address string
	Version string // as its program reports it, "" for a service of this program's own

	processes []*Process
	foreign   bool // does not end with its input
}

// Stop ends the service, and waits for its end.
func (s *Service) Stop() {
	var ending sync.WaitGroup
	for _, p := range s.processes {
		ending.Go(func() {
			if s.foreign {
				_ = p.Interrupt() // it is gone already
			}
			p.End()
		})
	}
	ending.Wait()
}

// ProcessorTime returns the processor time of the service's processes.
func (s *Service) ProcessorTime() time.Duration {
	return time.Duration(s.sum(func(p *Process) int64 { return int64(processorTime(p.PID())) }))
}

// sum adds up a value of the service's processes.
func (s *Service) sum(of func(*Process) int64) (all int64) {
	for _, p := range s.processes {
		all += of(p)
	}
	return all
}

// ResidentBytes returns the memory of the service's processes.
func (s *Service) ResidentBytes() int64 { return s.sum((*Process).ResidentBytes) }

// ResetPeak sets the memory peaks of the service's processes to their present sizes.
func (s *Service) ResetPeak() {
	for _, p := range s.processes {
		p.ResetPeak()
	}
}

// PeakBytes returns the sum of the most memory that each of the service's processes had since ResetPeak.
func (s *Service) PeakBytes() int64 { return s.sum((*Process).PeakBytes) }

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

// startNATS starts one server, or a cluster of several, which sync to disk as deployed, or before every acknowledgement.
func startNATS(n int, always bool) starter {
	return func(ctx context.Context, dir string) (*Service, error) { return startNodes(ctx, dir, n, always) }
}

func startNodes(ctx context.Context, dir string, n int, always bool) (_ *Service, err error) {
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

// startRedis starts a Redis with args that set its persistence.
func startRedis(args ...string) starter {
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
		cmd := exec.Command(path, all...) //nolint:noctx // ended by its owner
		return startForeign(ctx, cmd, fmt.Sprintf("127.0.0.1:%d", free[0]))
	}
}

func startEtcd(ctx context.Context, dir string) (*Service, error) {
	path, err := find("etcd")
	if err != nil {
		return nil, err
	}
	free, err := ports(2)
	if err != nil {
		return nil, err
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", free[0]), fmt.Sprintf("http://127.0.0.1:%d", free[1])
	cmd := exec.Command(path, "--name", "bench", "--data-dir", dir, "--listen-client-urls", client, //nolint:noctx // ended by its owner
		"--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "bench="+peer, "--log-level", "error")
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH) // else it refuses some
	return startForeign(ctx, cmd, fmt.Sprintf("127.0.0.1:%d", free[0]))
}

// startForeign starts a server that does not report when it is ready, and does not end with its input.
func startForeign(ctx context.Context, cmd *exec.Cmd, address string) (*Service, error) {
	started, err := testbed.Command(io.Discard, cmd)
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
			return &Service{Address: address, Version: version(ctx, cmd.Path), foreign: true, processes: []*Process{p}}, conn.Close()
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

// version returns the first line of a program's --version.
func version(ctx context.Context, program string) string {
	said, _ := exec.CommandContext(ctx, program, "--version").Output()
	line, _, _ := strings.Cut(string(said), "\n")
	return line
}

// nodeRole is the role of a NATS server. The process reads its node as JSON.
const nodeRole = "node"

// maxStore is the number of bytes that streams may reserve on a server, in memory and on disk.
const maxStore = 8 << 30

// node is one NATS server.
type node struct {
	Name   string
	Dir    string
	Port   int
	Route  int      // port for the other nodes; 0 for a server alone
	Routes []string // of all nodes
	Always bool     // sync to disk before every acknowledgement; otherwise every second, as deployed
}

// NodeMain runs a server until the end of the standard input, if this process was started for that.
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

// postgresFolders is the pattern of Debian's folders of the programs, the newest version last.
const postgresFolders = "/usr/lib/postgresql/*/bin"

// startPostgres makes a database cluster and starts its server, with the default settings: every commit is synced to disk. Its address is
// a URL. Postgres does not run as root; for root it runs as the user postgres of the package.
func startPostgres(ctx context.Context, dir string) (*Service, error) {
	initdb, err := find("initdb")
	if err != nil {
		return nil, err
	}
	program, err := find("postgres")
	if err != nil {
		return nil, err
	}
	ready, err := find("pg_isready")
	if err != nil {
		return nil, err
	}
	free, err := ports(1)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	attributes, err := actAs("postgres", dir, data)
	if err != nil {
		return nil, err
	}
	setup := exec.CommandContext(ctx, initdb, "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	setup.SysProcAttr, setup.Dir = attributes, dir
	if text, err := setup.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, text)
	}
	cmd := exec.Command(program, "-D", data, "-p", fmt.Sprint(free[0]), //nolint:noctx // ended by its owner
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=300")
	cmd.Dir, cmd.SysProcAttr = dir, attributes
	s, err := startForeign(ctx, cmd, fmt.Sprintf("127.0.0.1:%d", free[0]))
	if err != nil {
		return nil, err
	}
	s.Address = "postgres://bench@" + s.Address + "/postgres?sslmode=disable"
	for exec.CommandContext(ctx, ready, "-q", "-d", s.Address).Run() != nil {
		if !retry.Sleep(ctx, 50*time.Millisecond) {
			s.Stop()
			return nil, fmt.Errorf("postgres is not ready: %w", ctx.Err())
		}
	}
	return s, nil
}

// actAs returns the attributes of a process of another user, if this is root, and makes that user the owner of the folders.
func actAs(name string, folders ...string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return &syscall.SysProcAttr{}, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("%w: user %s, and Postgres does not run as root", ErrMissing, name)
	}
	var uid, gid int
	if _, err = fmt.Sscan(u.Uid+" "+u.Gid, &uid, &gid); err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	for _, folder := range folders {
		if err := os.Chown(folder, uid, gid); err != nil {
			return nil, fmt.Errorf("hand over a folder: %w", err)
		}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

// ErrMissing is returned when a program is not installed.
var ErrMissing = errors.New("not installed")

// find returns the path of a program that may not be installed.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob(filepath.Join(postgresFolders, program)) // the pattern is ours
	if len(found) == 0 {
		return "", fmt.Errorf("%w: %s", ErrMissing, program)
	}
	return found[len(found)-1], nil
}
