package outbox

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// The leader of the stream hands over, and then stops, while two relays are at work on three nodes. Nothing is lost, nothing
// is overtaken, and what is there twice a reader drops.
func TestRelaysOnAClusterWhoseLeaderGoes(t *testing.T) {
	t.Parallel()
	pool := database(t)
	c := natstest.Cluster(t, 3)
	nc, err := c.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{TB: t, pool: pool, js: js}
	p.stream(func(s *jetstream.StreamConfig) { s.Replicas = 3 })
	for range 2 {
		r, err := New(t.Context(), Config{
			BatchSize: 16, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), NATSURL: c.URLs(), Poll: time.Second, Pool: pool, PublishTimeout: 2 * time.Second,
			SyncInterval: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		run(t, r)
	}
	published := func() int { return p.count("published") }
	var all []Event
	for round, disturb := range []func(){
		func() {
			if err := c.StepDown(t.Context(), contracts.StreamEvents); err != nil {
				t.Error(err)
			}
		},
		func() {
			leader, err := c.StreamLeader(t.Context(), contracts.StreamEvents)
			if err != nil {
				t.Error(err)
				return
			}
			if err := leader.Stop(); err != nil {
				t.Error(err)
			}
		},
	} {
		part := events(fmt.Sprint("e", round), 20, 12)
		before := len(all)
		all = append(all, part...)
		p.insert(part...)
		await(t, "some are published", func() bool { return published() > before+20 })
		disturb()
		await(t, "all are published", func() bool { return published() == len(all) })
	}
	once, copies := inEffect(p.stored())
	checkOrder(t, once, all)
	if copies > 0 {
		t.Errorf("%d copies within the stream's window", copies)
	}
}
