package natsrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/internal/process"
	"github.com/expediter-io/expediter/internal/retry"
)

const (
	logName   = "server.log"
	nodeEnv   = "NATSRUN_NODE"
	readyLine = "ready\n"
	stopGrace = 20 * time.Second

	// portsPerNode is the number of ports of a node: for clients, for monitoring and for routes.
	portsPerNode = 3

	// confNodes is the number of node files in deploy/nats/cluster.
	confNodes = 3
)

// Node is one server of a cluster, in a separate process: this executable, in NodeMain. The process reads its spec from stdin and stops
// at the end of stdin, so it does not outlive this process. The methods of a Node are safe for concurrent use.
type Node struct {
	// Name is its name in the cluster: "n1".
	Name string

	// URL is its client address; restarts do not change it.
	URL string

	logger *slog.Logger
	ready  time.Duration
	spec   nodeSpec

	mu  sync.Mutex
	run *process.Process // nil when the node is down
}

// nodeSpec is the complete configuration of a node.
type nodeSpec struct {
	ClientPort  int    `json:"client_port"`
	Dir         string `json:"dir"`
	MonitorPort int    `json:"monitor_port"`
	Name        string `json:"name"`
	RoutePort   int    `json:"route_port"`
	Text        string `json:"text"` // the configuration, with its variables and includes
}

// Start starts a node that is down, on its store and ports, and returns when it takes connections; the cluster may
// still be electing (Cluster.WaitReady). It does nothing for a running node.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.ready)
	defer cancel()
	var err error
	for range portAttempts {
		if n.run, err = n.begin(ctx); !errors.Is(err, ErrPortInUse) {
			break
		}
		retry.Sleep(ctx, portRetry)
	}
	if err != nil {
		return fmt.Errorf("natsrun: start node %s: %w", n.Name, err)
	}
	go n.watch(n.run)
	return nil
}

// watch logs the end of a process that nobody has stopped.
func (n *Node) watch(p *process.Process) {
	<-p.Gone
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == p {
		n.logger.Warn("a node of the cluster has ended by itself", "node", n.Name, "error", p.Err, "log", n.log())
	}
}

// begin starts the node once. A port may be taken for a moment although nothing listens there: a process that another goroutine has just
// started shares the sockets of this process until its own program runs, even sockets closed since.
func (n *Node) begin(ctx context.Context) (*process.Process, error) {
	for _, port := range []int{n.spec.ClientPort, n.spec.MonitorPort, n.spec.RoutePort} {
		if !free(port) {
			return nil, fmt.Errorf("%w: %s", ErrPortInUse, address(port))
		}
	}
	p, err := n.launch()
	if err != nil {
		return nil, err
	}
	defer p.Out.Close()
	if err := n.handshake(ctx, p); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// launch starts the process, which appends to the log of its earlier incarnations.
func (n *Node) launch() (*process.Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this executable: %w", err)
	}
	log, err := os.OpenFile(n.log(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the node's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(exe) //nolint:noctx // this very program; the process outlives the context of its start
	cmd.Env = append(os.Environ(), nodeEnv+"=1")
	cmd.Stderr = log
	return process.Start(cmd)
}

// handshake sends the node its spec and waits until the node is ready.
func (n *Node) handshake(ctx context.Context, p *process.Process) error {
	if err := json.NewEncoder(p.In).Encode(n.spec); err != nil {
		return fmt.Errorf("hand over the configuration: %w", err)
	}
	// The end of ctx ends the read.
	stop := context.AfterFunc(ctx, func() { _ = p.Out.Close() }) // the read says so
	defer stop()
	answer, err := io.ReadAll(io.LimitReader(p.Out, int64(len(readyLine))))
	if string(answer) == readyLine {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: process %d: %w: its log is %s", ErrNotReady, p.PID(), ctx.Err(), n.log())
	}
	last := n.lastLine()
	if strings.Contains(last, syscall.EADDRINUSE.Error()) {
		return fmt.Errorf("%w: %s", ErrPortInUse, last)
	}
	return errors.Join(fmt.Errorf("%w: the process ended: %s (%s)", ErrNotReady, last, n.log()), err)
}

// Stop ends the node gracefully: the node first hands over its leaderships. Stop waits for the end, and does nothing
// for a node that is down. If the process had ended by itself it returns an error with the last line of its log.
func (n *Node) Stop() error { return n.end(n.stop) }

// Kill ends the node like a crash (SIGKILL), without a hand-over. It returns when the process has ended, and does nothing for a node that
// is down.
func (n *Node) Kill() error { return n.end((*process.Process).Kill) }

// Restart calls Stop, then Start.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Stop(); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Pause pauses the node (SIGSTOP): its connections stay open without an answer, as in a long stop of the machine. It returns ErrStopped
// for a node that is down.
func (n *Node) Pause() error { return n.pause(true) }

// Continue continues a paused node (SIGCONT). Its errors are those of Pause.
func (n *Node) Continue() error { return n.pause(false) }

// Running reports whether the node has been started and not stopped or killed since. A paused node counts as running.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.run != nil
}

func (n *Node) end(how func(*process.Process) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == nil {
		return nil
	}
	err := how(n.run)
	n.run = nil
	if err != nil {
		return fmt.Errorf("natsrun: stop node %s: %w", n.Name, err)
	}
	return nil
}

// stop lets the process hand over and end by itself, and kills it if it does not.
func (n *Node) stop(p *process.Process) error {
	// A paused process reads nothing. An error here means that the process has ended already, and matters only if it has not.
	err := errors.Join(p.Pause(false), p.In.Close())
	select {
	case <-p.Gone:
	case <-time.After(stopGrace):
		return errors.Join(fmt.Errorf("it did not end within %s: its log is %s", stopGrace, n.log()), err, p.Kill())
	}
	if p.Err != nil {
		return fmt.Errorf("%w: %s (%s)", p.Err, n.lastLine(), n.log())
	}
	return nil
}

func (n *Node) pause(on bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == nil {
		return fmt.Errorf("%w: node %s", ErrStopped, n.Name)
	}
	if err := n.run.Pause(on); err != nil {
		return fmt.Errorf("natsrun: node %s: %w", n.Name, err)
	}
	return nil
}

func (n *Node) log() string { return filepath.Join(n.spec.Dir, logName) }

// lastLine returns the last line of the node's log.
func (n *Node) lastLine() string {
	text, err := os.ReadFile(n.log())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// ask returns the answer of a node's monitor, ErrStopped when the node is down. It is no method, so that the server's types stay out of
// Node, for the same reason as in incarnation.
func ask[T any](ctx context.Context, n *Node, path string) (*T, error) {
	if !n.Running() {
		return nil, fmt.Errorf("%w: node %s", ErrStopped, n.Name)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address(n.spec.MonitorPort)+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("natsrun: %w", err)
	}
	// No connection is kept open: each would keep goroutines.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("natsrun: ask the node: %w", err)
	}
	defer resp.Body.Close()
	answer := new(T)
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return nil, fmt.Errorf("natsrun: answer of the node (%s): %w", resp.Status, err)
	}
	return answer, nil
}

var nodeMainCalled atomic.Bool

// NodeMain runs a cluster node and exits if this process was started as one, and otherwise returns at once. A program that starts a
// cluster has to call it first:
//
//	func TestMain(m *testing.M) {
//		natsrun.NodeMain()
//		os.Exit(m.Run())
//	}
func NodeMain() {
	nodeMainCalled.Store(true)
	if os.Getenv(nodeEnv) == "" {
		return
	}
	if err := serveNode(os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:revive // the node is this whole process
	}
	os.Exit(0) //nolint:revive // the node is this whole process
}

// serveNode runs the node that stdin describes until stdin ends.
func serveNode(stdin io.Reader, stdout, stderr io.Writer) error {
	var spec nodeSpec
	if err := json.NewDecoder(stdin).Decode(&spec); err != nil {
		return fmt.Errorf("natsrun: read the node's spec: %w", err)
	}
	opts, err := nodeOptions(spec)
	if err != nil {
		return err
	}
	signal.Ignore(os.Interrupt) // Ctrl-C at a terminal, which the parent gets too: it ends the node after its clients
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	ctx := context.Background() //nolint:forbidigo // the root context of this process; ReadyTimeout bounds the start
	ns, err := startServer(ctx, opts, Config{Logger: logger, ReadyTimeout: defaultClusterReady}, nil)
	if err != nil {
		return err
	}
	// Both writes fail if the parent has ended; the node ends in any case.
	_, writeErr := io.WriteString(stdout, readyLine)
	_, readErr := io.Copy(io.Discard, stdin)
	ns.Shutdown()
	ns.WaitForShutdown()
	return errors.Join(writeErr, readErr)
}

// nodeText returns the configuration of the node with index i. Nodes without their own file use the last file, with another name.
func nodeText(i int, users map[string]string, routes []string, password string) (string, error) {
	name := fmt.Sprintf("cluster/n%d.conf", min(i+1, confNodes))
	all := fmt.Sprintf("NATS_ROUTES: [%q]", strings.Join(routes, `", "`))
	all = strings.ReplaceAll(all, `\"`, `"`)
	return configText(name, users, define("NATS_ROUTE_PASSWORD", password), all)
}

// nodeOptions parses the configuration and sets the directories and ports of this machine.
func nodeOptions(s nodeSpec) (*server.Options, error) {
	opts, err := parse(s.Text, "cluster configuration")
	if err != nil {
		return nil, err
	}
	embed(opts)
	opts.ServerName = s.Name
	opts.StoreDir = s.Dir
	opts.Host, opts.Port = loopback, s.ClientPort
	opts.HTTPHost, opts.HTTPPort = loopback, s.MonitorPort
	opts.Cluster.Host, opts.Cluster.Port = loopback, s.RoutePort
	return opts, nil
}
