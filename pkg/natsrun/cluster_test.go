package natsrun_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestClusterStepsDownStopsAndCatchesUp(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	kv := bucket(t, js, "b", 3)
	put(t, kv, "k", "1")
	before := leader(t, c)
	check.OK(t, c.StepDown(t.Context(), "KV_b"))
	after := leader(t, c)
	check.That(t, after != before, "leader after StepDown: still %s", after.Name)
	check.OK(t, after.Stop())
	check.That(t, !after.Running(), "%s runs after Stop", after.Name)
	put(t, kv, "k", "2")
	check.OK(t, after.Start(t.Context()))
	check.OK(t, c.WaitReady(t.Context()))
	mustHold(t, c, after, "2")
}

func TestKilledLeaderIsReplacedAndCatchesUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := natstest.Cluster(t, 3, func(c *natsrun.ClusterConfig) { c.Dir = dir })
	_, js := natstest.ConnectURL(t, c.URLs())
	kv := bucket(t, js, "b", 3)
	put(t, kv, "k", "before")
	killed := leader(t, c)
	check.OK(t, killed.Kill())
	said, err := os.ReadFile(filepath.Join(dir, killed.Name, "server.log"))
	check.That(t, err == nil && !strings.Contains(string(said), "Initiating Shutdown"),
		"log of the killed node: got %v and a farewell, want none:\n%s", err, said)
	put(t, kv, "k", "after")
	check.OK(t, c.WaitReady(t.Context()))
	got := leader(t, c)
	check.That(t, got != killed, "leader after its death: still %s", got.Name)
	check.OK(t, killed.Start(t.Context()))
	check.OK(t, c.WaitReady(t.Context()))
	mustHold(t, c, killed, "after")
}

// No node can have it from another here: each must have kept its own.
func TestClusterKeepsEverythingWhenAllNodesAreKilled(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	put(t, bucket(t, js, "b", 3), "k", "kept")
	for _, n := range c.Nodes {
		check.OK(t, n.Kill())
	}
	check.Is(t, check.Err(c.StreamLeader(soon(t), "KV_b")), natsrun.ErrNoLeader)
	for _, n := range c.Nodes {
		check.OK(t, n.Start(t.Context()))
	}
	check.OK(t, c.WaitReady(t.Context()))
	mustHold(t, c, c.Nodes[0], "kept")
}

func TestPausedLeaderIsReplacedAndComesBack(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	put(t, bucket(t, js, "b", 3), "k", "before")
	paused := leader(t, c)
	check.OK(t, paused.Pause())
	var others []string
	for _, n := range c.Nodes {
		if n != paused {
			others = append(others, n.URL)
		}
	}
	// A client of the paused node would wait for it as well.
	_, js = natstest.ConnectURL(t, strings.Join(others, ","))
	var kv jetstream.KeyValue
	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) (err error) {
		kv, err = js.KeyValue(ctx, "b")
		return err
	}))
	put(t, kv, "k", "after")
	if err := c.WaitReady(soon(t)); !errors.Is(err, natsrun.ErrNotReady) || !strings.Contains(err.Error(), paused.Name) {
		t.Errorf("ready with a paused node: got %v, want ErrNotReady that names %s", err, paused.Name)
	}
	check.OK(t, paused.Continue())
	check.OK(t, c.WaitReady(t.Context()))
	mustHold(t, c, paused, "after")
}

func TestClusterOfFive(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 5)
	_, js := natstest.ConnectURL(t, c.URLs())
	put(t, bucket(t, js, "b", 5), "k", "v")
	settle(t, c)
}

func TestClusterSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := natstest.Cluster(t, 3, func(c *natsrun.ClusterConfig) { c.Dir = dir })
	check.Is(t, check.Err(natsrun.StartCluster(t.Context(), natsrun.ClusterConfig{Dir: dir})), natsrun.ErrDirInUse)
	_, err := natsrun.StartCluster(t.Context(), natsrun.ClusterConfig{Nodes: 10, ReadyTimeout: -1})
	check.Contains(t, err, "Nodes 10", "ReadyTimeout")
	check.Is(t, check.Err(c.StreamLeader(soon(t), "NONE")), natsrun.ErrNoLeader)
	c.Stop()
	c.Stop()
	check.Is(t, c.Nodes[0].Pause(), natsrun.ErrStopped)
}

// settle lets replicas be made that were asked for: a server that is shut down while
// it makes one leaves a goroutine behind.
func settle(t testing.TB, c *natsrun.Cluster) {
	t.Helper()
	check.OK(t, c.WaitReady(t.Context()))
}

func leader(t testing.TB, c *natsrun.Cluster) *natsrun.Node {
	t.Helper()
	return check.Must(c.StreamLeader(t.Context(), "KV_b"))(t)
}

// soon returns a context that ends a wait soon, for a condition that does not come.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// mustHold makes the node lead, so that the answer is its own, and reads there.
func mustHold(t testing.TB, c *natsrun.Cluster, n *natsrun.Node, want string) {
	t.Helper()
	nc, _ := natstest.ConnectURL(t, n.URL)
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Data []byte `json:"data"`
		} `json:"message"`
	}
	// Only the leader answers this; a node that leads before and after the request is the one that answered.
	for led := false; !led; led = leader(t, c) == n {
		makeLead(t, c, n)
		check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
			got.Error = nil
			msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.KV_b", []byte(`{"last_by_subj":"$KV.b.k"}`))
			if err != nil {
				return err
			}
			if err := json.Unmarshal(msg.Data, &got); err != nil || got.Error == nil {
				return err
			}
			return got.Error
		}))
	}
	check.That(t, string(got.Message.Data) == want, "on %s: got %q, want %q", n.Name, got.Message.Data, want)
}

func makeLead(t testing.TB, c *natsrun.Cluster, n *natsrun.Node) {
	t.Helper()
	for leader(t, c) != n {
		check.OK(t, c.StepDown(t.Context(), "KV_b"))
	}
}
