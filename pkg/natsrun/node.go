package natsrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/pkg/pause"
)

// Node is one server of a cluster. Its methods are safe for concurrent use.
type Node struct {
	// Name is its name in the cluster: "n1".
	Name string

	// URL is its client address; restarts do not change it.
	URL string

	processes bool
	logger    *slog.Logger
	ready     time.Duration
	spec      nodeSpec

	mu  sync.Mutex
	run runningNode // nil when the node is down
}

// runningNode is a running server, in this process or in its own.
type runningNode interface {
	// kill ends the server without a graceful stop.
	kill() error
	// pause stops the server's clock, or lets it go on.
	pause(on bool) error
	// stop ends the server gracefully and waits for it.
	stop() error
}

// informer has the requests of a runningNode. It is a separate interface for the same reason as incarnation: its types stay out of Node.
type informer interface {
	// info returns the server's state of JetStream, streams included.
	info(ctx context.Context) (*server.JSInfo, error)
	// routes returns the server's connections to other nodes.
	routes(ctx context.Context) (*server.Routez, error)
}

func newNode(spec nodeSpec, cfg ClusterConfig) *Node {
	return &Node{
		Name: spec.Name, URL: "nats://" + address(spec.ClientPort),
		processes: cfg.Processes, logger: cfg.Logger, ready: cfg.ReadyTimeout, spec: spec,
	}
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
		pause.For(ctx, portRetry)
	}
	if err != nil {
		return fmt.Errorf("natsrun: start node %s: %w", n.Name, err)
	}
	return nil
}

// begin starts the node once. A port may be taken for a moment although nothing listens there: a process that another goroutine has just
// started shares the sockets of this process until its own program runs, even sockets closed since.
func (n *Node) begin(ctx context.Context) (runningNode, error) {
	for _, port := range []int{n.spec.ClientPort, n.spec.MonitorPort, n.spec.RoutePort} {
		if err := probe(port); err != nil {
			return nil, err
		}
	}
	if n.processes {
		return startProcess(ctx, n.spec, n.logger)
	}
	return startInProcess(ctx, n.spec, n.logger)
}

// Stop ends the node gracefully: the node first hands over its leaderships. Stop waits for the end, and does nothing
// for a node that is down. If the process had ended by itself it returns an error with the last line of its log.
func (n *Node) Stop() error { return n.end(runningNode.stop) }

// Kill ends the node like a crash (SIGKILL), without a hand-over. It returns when the process has ended, and returns ErrNoProcess for a
// node that is not a process. It does nothing for a node that is down.
func (n *Node) Kill() error { return n.end(runningNode.kill) }

// Restart calls Stop, then Start.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Stop(); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Pause pauses the node (SIGSTOP): its connections stay open without an answer, as in a long stop of the machine. It returns ErrNoProcess
// for a node that is not a process, and ErrStopped for a node that is down.
func (n *Node) Pause() error { return n.pause(true) }

// Continue continues a paused node (SIGCONT). Its errors are those of Pause.
func (n *Node) Continue() error { return n.pause(false) }

// Running reports whether the node has been started and not stopped or killed since. A paused node counts as running.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.run != nil
}

func (n *Node) end(how func(runningNode) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == nil {
		return nil
	}
	if err := how(n.run); err != nil {
		if errors.Is(err, ErrNoProcess) {
			return fmt.Errorf("%w: node %s", err, n.Name) // it still runs
		}
		n.run = nil
		return fmt.Errorf("natsrun: stop node %s: %w", n.Name, err)
	}
	n.run = nil
	return nil
}

func (n *Node) pause(on bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == nil {
		return fmt.Errorf("%w: node %s", ErrStopped, n.Name)
	}
	if err := n.run.pause(on); err != nil {
		return fmt.Errorf("natsrun: node %s: %w", n.Name, err)
	}
	return nil
}

// informer returns the running node, ErrStopped when it is down.
func (n *Node) informer() (informer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == nil {
		return nil, fmt.Errorf("%w: node %s", ErrStopped, n.Name)
	}
	run, ok := n.run.(informer)
	if !ok {
		return nil, fmt.Errorf("natsrun: node %s: %T is no informer", n.Name, n.run)
	}
	return run, nil
}

// localNode is a node inside this process.
type localNode struct{ ns *server.Server }

func startInProcess(ctx context.Context, spec nodeSpec, logger *slog.Logger) (runningNode, error) {
	opts, err := nodeOptions(spec)
	if err != nil {
		return nil, err
	}
	// A server in this process needs no HTTP for its monitoring.
	opts.HTTPHost, opts.HTTPPort = "", 0
	ns, err := startServer(ctx, opts, Config{Logger: logger, ReadyTimeout: timeLeft(ctx)}, nil)
	if err != nil {
		return nil, err
	}
	return &localNode{ns: ns}, nil
}

func (l *localNode) info(ctx context.Context) (*server.JSInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := l.ns.Jsz(streamInfo())
	if err != nil {
		return nil, fmt.Errorf("natsrun: JetStream of %s: %w", l.ns.Name(), err)
	}
	return info, nil
}

func (l *localNode) routes(ctx context.Context) (*server.Routez, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	routes, err := l.ns.Routez(nil)
	if err != nil {
		return nil, fmt.Errorf("natsrun: routes of %s: %w", l.ns.Name(), err)
	}
	return routes, nil
}

func (l *localNode) kill() error { return ErrNoProcess }

func (l *localNode) pause(bool) error { return ErrNoProcess }

func (l *localNode) stop() error {
	l.ns.Shutdown()
	l.ns.WaitForShutdown()
	return nil
}

// streamInfo asks for every stream and consumer of every account with its leader.
func streamInfo() *server.JSzOptions {
	return &server.JSzOptions{Accounts: true, Streams: true, Consumer: true, Limit: maxStreams}
}

// maxStreams bounds an answer about streams.
const maxStreams = 10_000

// timeLeft returns the time until the deadline of ctx, which must have one.
func timeLeft(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return defaultClusterReady
	}
	return time.Until(deadline)
}

// portsPerNode is the number of ports of a node: for clients, for monitoring and for routes.
const portsPerNode = 3

// confNodes is the number of node files in deploy/nats/cluster.
const confNodes = 3

// nodeSpec is the complete configuration of a node, in this or another process.
type nodeSpec struct {
	ClientPort  int    `json:"client_port"`
	Dir         string `json:"dir"`
	MonitorPort int    `json:"monitor_port"`
	Name        string `json:"name"`
	RoutePort   int    `json:"route_port"`
	Text        string `json:"text"` // the configuration, with its variables and includes
}

// nodeText returns the configuration of the node with index i. Nodes without a file of their own use the last file, with another name.
func nodeText(i int, users map[string]string, routes []string, password string) (string, error) {
	name := fmt.Sprintf("cluster/n%d.conf", min(i+1, confNodes))
	all := fmt.Sprintf("NATS_ROUTES: [%q]", strings.Join(routes, `", "`))
	all = strings.ReplaceAll(all, `\"`, `"`)
	return configText(name, users, define("NATS_ROUTE_PASSWORD", password), all)
}

// options parses the configuration and sets the directories and ports of this machine.
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
