package outbox_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
)

// The leader of the stream steps down, then stops, and then is killed, while two relays publish to three nodes. No event is lost,
// overtaken, or in the stream twice.
func TestRelaysOnAClusterWhoseLeaderGoes(t *testing.T) {
	t.Parallel()
	pool := database(t)
	c := natstest.Cluster(t, 3, natstest.Processes)
	_, js := natstest.ConnectURL(t, c.URLs())
	p := &place{TB: t, pool: pool, js: js}
	p.stream(func(s *jetstream.StreamConfig) { s.Replicas = 3 })
	for range 2 {
		r, err := outbox.New(t.Context(), outbox.Config{
			BatchSize: 16, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), NATSURL: c.URLs(), Poll: time.Second, Pool: pool, PublishTimeout: 2 * time.Second,
			SyncInterval: time.Hour,
		})
		check.OK(t, err)
		run(t, r)
	}
	published := func() int { return p.count("published") }
	// leave stops the leader by how, and starts it again.
	leave := func(how func(*natsrun.Node) error) {
		leader, err := c.StreamLeader(t.Context(), contracts.StreamEvents)
		if err == nil {
			err = how(leader)
		}
		if err == nil {
			err = leader.Start(t.Context())
		}
		check.Is(t, err, nil)
	}
	var all []outbox.Event
	for round, disturb := range []func(){
		func() {
			check.Is(t, c.StepDown(t.Context(), contracts.StreamEvents), nil)
		},
		func() { leave((*natsrun.Node).Stop) },
		func() { leave((*natsrun.Node).Kill) },
	} {
		part := events(fmt.Sprint("e", round), 20, 12)
		before := len(all)
		all = append(all, part...)
		p.insert(part...)
		await(t, "some are published", func() bool { return published() > before+20 })
		disturb()
		await(t, "all are published", func() bool { return published() == len(all) })
	}
	checkOrder(t, p.stored(), all)
}
