package natstest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) {
	// A server that is stopped while it makes a replicated stream leaves a store of it open (createRaftGroup, when
	// startRaftNode fails), and with it the goroutine that keeps the time for all stores of the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}

// TestMain of this package does not call NodeMain, as a program that forgot it.
func TestProcessesNeedNodeMain(t *testing.T) {
	t.Parallel()

	_, err := natsrun.StartCluster(t.Context(), natsrun.ClusterConfig{Processes: true})
	check.That(t, errors.Is(err, natsrun.ErrNoNodeMain) && strings.Contains(err.Error(), "TestMain"),
		"got %v, want ErrNoNodeMain that says where to call it", err)
}

func TestClusterTakesThreeReplicas(t *testing.T) {
	t.Parallel()

	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())

	check.Is(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Replicas: 3})
		return err
	}), nil)

	// A server that is shut down while it makes a replica leaves a goroutine behind.
	check.Is(t, c.WaitReady(t.Context()), nil)
}

func TestServerAppliesEveryMutation(t *testing.T) {
	t.Parallel()

	srv := natstest.Server(t,
		func(c *natsrun.Config) { c.ServerName = "first" },
		func(c *natsrun.Config) { c.ServerName += "-second" },
	)
	nc, _ := natstest.Connect(t, srv)

	check.Same(t, "server name", nc.ConnectedServerName(), "first-second")
}
