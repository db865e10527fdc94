package natstest

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun"
)

// Cluster runs n nodes for this test alone, ready to create streams with n
// replicas (5 at most), and stops them when the test ends. Stores are in
// t.TempDir. Nodes are inside this process unless a mutation sets Processes;
// importing natstest/fastelection makes fail-overs take one second, not five.
func Cluster(t testing.TB, n int, mutate ...func(*natsrun.ClusterConfig)) *natsrun.Cluster {
	t.Helper()

	cfg := natsrun.ClusterConfig{Nodes: n, ReadyTimeout: patience}
	for _, m := range mutate {
		m(&cfg)
	}

	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}

	c, err := natsrun.StartCluster(t.Context(), cfg)
	if err != nil {
		t.Fatalf("start a NATS cluster of %d nodes for the test: %v", cfg.Nodes, err)
	}

	t.Cleanup(c.Stop)

	return c
}

// Processes makes the nodes of Cluster processes that can be killed and paused.
// The test binary calls natsrun.NodeMain first thing in TestMain.
func Processes(c *natsrun.ClusterConfig) { c.Processes = true }
