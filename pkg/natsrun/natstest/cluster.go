package natstest

import (
	"os"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Cluster runs n nodes for this test alone, ready to create streams with n
// replicas (5 at most), and stops them when the test ends. Stores are in a
// temporary directory, in RAM where there is room. Nodes are inside this process unless a mutation sets Processes;
// importing natstest/fastelection makes fail-overs take one second, not five.
func Cluster(t testing.TB, n int, mutate ...func(*natsrun.ClusterConfig)) *natsrun.Cluster {
	t.Helper()
	collectSeldom(t)

	cfg := natsrun.ClusterConfig{Nodes: n, ReadyTimeout: patience}
	for _, m := range mutate {
		m(&cfg)
	}

	cfg.Memory = cfg.Dir == ""

	c, err := natsrun.StartCluster(t.Context(), cfg)
	check.Require(t, err == nil, "start a NATS cluster of %d nodes for the test: %v", cfg.Nodes, err)

	t.Cleanup(c.Stop)
	return c
}

// Processes makes the nodes of Cluster processes that can be killed and paused.
// The test binary calls natsrun.NodeMain first thing in TestMain.
func Processes(c *natsrun.ClusterConfig) { c.Processes = true }

// Forget stops a node of c and restarts the others one by one, so that none of them knows of it. The cluster goes on,
// and refuses requests that need that node, such as a stream with as many replicas as there are nodes, until the node
// is started.
func Forget(t testing.TB, c *natsrun.Cluster) *natsrun.Node {
	t.Helper()

	last := len(c.Nodes) - 1
	forgotten := c.Nodes[last]

	err := forgotten.Stop()
	check.Require(t, err == nil, "stop a node: %v", err)

	for _, n := range c.Nodes[:last] {
		err := n.Restart(t.Context())
		check.Require(t, err == nil, "restart a node: %v", err)

		err = c.WaitReady(t.Context())
		check.Require(t, err == nil, "a cluster that goes on without a node: %v", err)
	}
	return forgotten
}

// heapGrowth is the growth of the heap between two garbage collections, in percent.
const heapGrowth = 400

// collectSeldom makes garbage collections in this process rarer, unless GOGC is set: the heap of a test is small, and
// collecting it is a fifth of a server's work. It does nothing in a benchmark, which measures the usual setting.
func collectSeldom(t testing.TB) {
	t.Helper()

	if _, ok := t.(*testing.B); !ok {
		setHeapGrowth()
	}
}

var setHeapGrowth = sync.OnceFunc(func() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
})
