package console_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// logged logs how long the overview took to say something since a fault.
func logged(s *consoletest.Site, texts ...string) {
	s.Helper()
	since := time.Now()
	until(s, texts...)
	s.Logf("after %s: %q", time.Since(since), texts)
}

func TestOverviewShowsAStuckHandler(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	began := works(t, s, "vm-3", "v1")
	check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high.a", []byte(`{"kind":"stuck"}`))))
	check.Same(t, "the job that runs", <-began, "stuck")
	logged(s, "worker vm-3 of IMPORT_JOBS: handlers that ignore their ended contexts: 1", "runbooks.md#handlersstuck", "expediter jobs workers --stacks")
}

func TestOverviewShowsAStoreThatFills(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	stream, err := s.JetStream.Stream(t.Context(), contracts.StreamImportJobs)
	check.OK(t, err)
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = 64 << 10
	check.OK(t, check.Err(s.JetStream.UpdateStream(t.Context(), cfg)))
	until(s, "Nothing is wrong")
	fill := func(n int) (err error) {
		for i := 0; i < n && err == nil; i++ {
			_, err = s.JetStream.Publish(t.Context(), fmt.Sprint("jobs.import.normal.", n, "-", i), bytes.Repeat([]byte("x"), 1<<10))
		}
		return err
	}
	check.OK(t, fill(52))
	logged(s, "IMPORT_JOBS: 8", " % full, and it refuses messages at 100 %", "runbooks.md#streamfilling")
	check.Failsf(t, fill(64), "a stream takes more than it may")
	logged(s, "IMPORT_JOBS: 9", " % full, and it refuses messages at 100 %")
}

// The store of a server fills, although no account and no stream has a bound that is near.
func TestOverviewShowsAServerThatFills(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) {
		c.Users = users.Public
		natsrun.ChangeOptions(c, func(o *server.Options) {
			o.JetStreamMaxStore, o.SyncAlways, o.SyncInterval = 4<<20, false, 5*time.Second
		})
	})
	_, admin := natstest.Connect(t, srv, users.As("admin"))
	nc, js := natstest.Connect(t, srv, users.As("console"))
	s := consoletest.Serve(t, srv, nc, js)
	until(s, "Nothing is wrong", "server test 0 B of 4 MiB (0 %), sync every 5.0 s")
	check.OK(t, check.Err(admin.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILL", MaxBytes: 4 << 20, Subjects: []string{"fill"}})))
	for range 55 {
		check.OK(t, check.Err(admin.Publish(t.Context(), "fill", bytes.Repeat([]byte("x"), 64<<10))))
	}
	logged(s, "storage of the server test 3.", " MiB of 4 MiB (8", "runbooks.md#storagefull")
}

// A server of three dies. The overview says which, and once.
func TestOverviewShowsALostNode(t *testing.T) {
	t.Parallel()
	cluster := natstest.Cluster(t, 3, natstest.Processes)
	nc, js := natstest.ConnectURL(t, cluster.URLs(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 28, Replicas: 3, Services: []string{contracts.ServiceEnricher, contracts.ServiceLock}})
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, assets, contracts.ApplyOptions{})))
	s := consoletest.Serve(t, nil, nc, js)
	until(s, "ENRICH_JOBS", "Nothing is wrong")
	leader, err := cluster.StreamLeader(t.Context(), contracts.StreamEnrichJobs)
	check.OK(t, err)
	node := cluster.Nodes[0]
	if node == leader {
		node = cluster.Nodes[1]
	}
	check.OK(t, node.Kill())
	logged(s, "node "+node.Name+" was silent for ", fmt.Sprintf(", with replicas of %d streams", len(assets)), "runbooks.md#nodeaway")
	check.OK(t, node.Start(t.Context()))
	until(s, "Nothing is wrong")
}
