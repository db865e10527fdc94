package doctor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection"
)

//nolint:tparallel // one cluster
func TestACluster(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	s := &site{T: t, env: map[string]string{"NATS_URL": c.URLs()}}
	_, s.js = natstest.ConnectURL(t, c.URLs())
	s.run(0, "apply", "--replicas", "3")
	s.healthy()
	mistake{name: "a replica is missing", id: "stream.num_replicas", make: change("KV_locks", func(c *jetstream.StreamConfig) { c.Replicas = 1 })}.check(t, s)
	check.OK(t, c.Nodes[2].Stop())
	away := func(p *jetstream.PeerInfo) bool {
		return p.Name == c.Nodes[2].Name && (p.Offline || p.Active > 10*time.Second)
	}
	for _, stream := range contracts.Assets(contracts.AssetOptions{}) { // all have a leader, which knows that the node is away
		check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
			found, err := s.js.Stream(ctx, stream.Name)
			if err == nil && (found.CachedInfo().Cluster.Leader == "" || !slices.ContainsFunc(found.CachedInfo().Cluster.Replicas, away)) {
				err = nats.ErrNoResponders
			}
			return err
		}))
	}
	report := s.examine(1)
	for _, f := range report.Findings {
		if f.ID != "replica.offline" && f.ID != "replica.behind" || !strings.Contains(f.Problem, c.Nodes[2].Name) {
			t.Errorf("without a node it finds %+v", f)
		}
	}
	if len(report.Findings) < 17 { //nolint:mnd // streams
		t.Errorf("without a node it finds %+v", report.Findings)
	}
	check.OK(t, c.Nodes[1].Stop())
	report = s.examine(1)
	found := map[string]bool{}
	for _, f := range report.Findings {
		found[f.ID] = true
	}
	check.That(t, found["stream.leader"], "without two nodes it finds %+v", report.Findings)
}
