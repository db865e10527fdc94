package natsrun

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/validate"
)

const (
	defaultNodes        = 3
	defaultClusterReady = 60 * time.Second
	maxNodes            = 9
	minNodes            = 3
	portAttempts        = 5
)

// ClusterConfig configures a [Cluster]. The zero value stands for three nodes with their stores in a temporary directory. Each node
// is a process that runs this executable, which must call NodeMain first in main or TestMain.
type ClusterConfig struct {
	// ClientOptions are the connection options of the cluster's own client, which asks for streams and requests step-downs. With Users they
	// are required, and must authenticate the admin. Defaults to none.
	ClientOptions []nats.Option

	// Dir holds a directory per node ("n1"), with its store and its log (server.log). It is locked against a second
	// cluster, and Stop keeps it. Defaults to "", a temporary directory that Stop removes.
	Dir string

	// Logger gets a warning when a node ends by itself, and when Stop cannot clean up. Defaults to nil, which discards it.
	Logger *slog.Logger

	// Memory puts the temporary directory on a RAM file system, as in Config. It cannot be combined with Dir. Defaults
	// to false.
	Memory bool

	// Nodes is the number of nodes, 3 to 9. Fewer nodes cannot lose one; [Start] runs a single server. Defaults to 3.
	Nodes int

	// ReadyTimeout bounds a wait for the cluster whose context has no deadline. Defaults to 60 seconds.
	ReadyTimeout time.Duration

	// Users turns on accounts.conf, as in Config. Defaults to nil.
	Users map[string]string
}

func (c ClusterConfig) withDefaults() ClusterConfig {
	c.Nodes = cmp.Or(c.Nodes, defaultNodes)
	c.ReadyTimeout = cmp.Or(c.ReadyTimeout, defaultClusterReady)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c ClusterConfig) validate() error {
	return errors.Join(
		// A child that does not call NodeMain would run the whole test again, with its own children.
		validate.If(!nodeMainCalled.Load(), "%w: call natsrun.NodeMain() first thing in main or TestMain", ErrNoNodeMain),
		validate.If(c.Memory && c.Dir != "", "natsrun: Memory and Dir %q exclude each other: clear one", c.Dir),
		validate.If(c.Nodes != 0 && (c.Nodes < minNodes || c.Nodes > maxNodes),
			"natsrun: Nodes %d is not between %d and %d", c.Nodes, minNodes, maxNodes),
		validate.If(c.ReadyTimeout < 0, "natsrun: ReadyTimeout %s is negative", c.ReadyTimeout))
}

// Cluster is a running NATS cluster on 127.0.0.1. Its methods are safe for
// concurrent use.
type Cluster struct {
	// Nodes are all nodes, running or not, n1 first.
	Nodes []*Node

	cfg   ClusterConfig
	dir   *storeDir
	ports *portBlock
	stop  sync.Once
}

// StartCluster starts the nodes from deploy/nats/cluster, on free ports, and
// waits until streams can be created on all of them (WaitReady), about a second. The caller stops it.
//
// Errors: ErrDirInUse, ErrDirUnusable, ErrNoNodeMain, ErrNotReady, the end of ctx, and all mistakes in cfg at once.
func StartCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	dir, err := openStoreDir(cfg.Dir, cfg.Memory)
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, dir: dir}
	if err := c.startNodes(ctx); err != nil {
		return nil, errors.Join(err, c.shutdown())
	}
	if err := c.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, c.shutdown())
	}
	return c, nil
}

// Stop stops every node and waits until all have ended. Calling it again does nothing.
func (c *Cluster) Stop() {
	if err := c.shutdown(); err != nil {
		c.cfg.Logger.Warn("cannot clean up after the cluster", "error", err)
	}
}

// URLs returns the client addresses of all nodes, separated by commas, for nats.Connect. Restarts do not change them.
func (c *Cluster) URLs() string {
	urls := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		urls[i] = n.URL
	}
	return strings.Join(urls, ",")
}

// Connect returns a client that reconnects for ever to any node; opts override these defaults. The caller closes it.
func (c *Cluster) Connect(opts ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectJitter(0, 0),
		nats.ReconnectWait(reconnectWait),
	}, opts...)
	nc, err := nats.Connect(c.URLs(), all...)
	if err != nil {
		return nil, fmt.Errorf("natsrun: connect to cluster: %w", err)
	}
	return nc, nil
}

// startNodes starts all nodes at once, and again on other ports if another process took a port in between.
func (c *Cluster) startNodes(ctx context.Context) error {
	var err error
	for range portAttempts {
		if err := c.defineNodes(); err != nil {
			return err
		}
		err = c.each(func(n *Node) error { return n.Start(ctx) })
		if !errors.Is(err, ErrPortInUse) {
			return err
		}
		if stopErr := c.each((*Node).Stop); stopErr != nil {
			return errors.Join(err, stopErr)
		}
	}
	return err
}

// defineNodes gives each node its directory, its ports and its configuration.
func (c *Cluster) defineNodes() error {
	if err := c.takePorts(); err != nil {
		return err
	}
	specs := make([]nodeSpec, c.cfg.Nodes)
	routes := make([]string, c.cfg.Nodes)
	password := rand.Text()
	ports := c.ports.ports
	for i := range specs {
		name := fmt.Sprintf("n%d", i+1)
		specs[i] = nodeSpec{
			Dir: filepath.Join(c.dir.path, name), Name: name,
			ClientPort: ports[0], MonitorPort: ports[1], RoutePort: ports[2],
		}
		routes[i] = fmt.Sprintf("nats-route://route:%s@%s", password, address(ports[2]))
		ports = ports[portsPerNode:]
	}
	c.Nodes = make([]*Node, c.cfg.Nodes)
	for i, spec := range specs {
		text, err := nodeText(i, c.cfg.Users, routes, password)
		if err != nil {
			return err
		}
		spec.Text = text
		if err := os.MkdirAll(spec.Dir, dirMode); err != nil {
			return fmt.Errorf("%w: %w", ErrDirUnusable, err)
		}
		c.Nodes[i] = &Node{
			Name: spec.Name, URL: "nats://" + address(spec.ClientPort), logger: c.cfg.Logger, ready: c.cfg.ReadyTimeout, spec: spec,
		}
	}
	return nil
}

// takePorts reserves new ports in place of the present ones.
func (c *Cluster) takePorts() error {
	ports, err := reservePorts(portsPerNode * c.cfg.Nodes)
	if err != nil {
		return err
	}
	err = c.ports.close()
	c.ports = ports
	return err
}

// each runs f on every node at once and joins the errors.
func (c *Cluster) each(f func(*Node) error) error {
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i, n := range c.Nodes {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) shutdown() error {
	var err error
	c.stop.Do(func() {
		err = errors.Join(c.each((*Node).Stop), c.ports.close(), c.dir.close())
	})
	return err
}

const stepDownAPI = "$JS.API.STREAM.LEADER.STEPDOWN."

// StreamLeader returns the node that reports itself as the stream's leader (in any account; a bucket's stream is
// "KV_<bucket>"). During an election it waits for the result, until ctx ends, or for ReadyTimeout if ctx has no
// deadline. After that, or when the stream does not exist, it returns ErrNoLeader.
func (c *Cluster) StreamLeader(ctx context.Context, stream string) (*Node, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.otherLeader(ctx, stream, nil)
}

// StepDown makes the stream's leader hand over to another node and returns when the new one leads. It returns ErrNotReady when none does
// until ctx ends, or for ReadyTimeout if ctx has no deadline: a stream with one replica has nobody to hand over to.
func (c *Cluster) StepDown(ctx context.Context, stream string) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	before, err := c.StreamLeader(ctx, stream)
	if err != nil {
		return err
	}
	// An election loses requests, and the chosen node may not take over: then the old node leads again.
	return c.pollPatiently(ctx, func(ctx context.Context) error {
		refused := c.requestStepDown(ctx, stream)
		// A request without an answer may have been carried out.
		if _, err := c.otherLeader(ctx, stream, before); err != nil {
			return errors.Join(refused, err)
		}
		return nil
	})
}

// otherLeader waits for a leader that is not this node. Each node is asked on its own, so that a paused one does not
// delay the others.
func (c *Cluster) otherLeader(ctx context.Context, stream string, not *Node) (*Node, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var leader atomic.Pointer[Node]
	err := c.each(func(n *Node) error {
		return c.poll(ctx, func(ctx context.Context) error {
			info, err := ask[server.JSInfo](ctx, n, streamInfo)
			if err != nil {
				return err
			}
			if d := details(info)[stream]; n == not || d == nil || d.Cluster == nil || d.Cluster.Leader != n.Name {
				return fmt.Errorf("node %s does not lead it", n.Name)
			}
			leader.CompareAndSwap(nil, n)
			cancel()
			return nil
		})
	})
	if n := leader.Load(); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("%w: %s: create it first: %w", ErrNoLeader, stream, err)
}

// requestStepDown asks the leader once, for half of the time that ctx leaves.
func (c *Cluster) requestStepDown(ctx context.Context, stream string) error {
	ctx, cancel := context.WithTimeout(ctx, timeLeft(ctx)/2)
	defer cancel()
	return c.withClient(ctx, func(nc *nats.Conn) error {
		var resp server.JSApiStreamLeaderStepDownResponse
		msg, err := nc.RequestWithContext(ctx, stepDownAPI+stream, nil)
		if err == nil {
			err = json.Unmarshal(msg.Data, &resp)
		}
		if err == nil && resp.Error != nil {
			err = resp.Error
		}
		if err != nil {
			return fmt.Errorf("natsrun: step down leader of %s: %w", stream, err)
		}
		return nil
	})
}
