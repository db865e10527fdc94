package outbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
)

// The permissions of publishers in production suffice for a relay, also for asking the leader for a missing message.
func TestRelayNeedsNoMoreThanItIsPermitted(t *testing.T) {
	t.Parallel()
	pool := database(t)
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	admin, _ := natstest.Connect(t, srv, users.As("admin"))
	p := &place{TB: t, pool: pool, srv: srv, js: natstest.InAccount(t, admin, "NOTIFIER")}
	p.stream(func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	denied := make(chan error, 100)
	r, _ := p.relay(func(c *outbox.Config) {
		c.NATSOptions = []nats.Option{nats.InProcessServer(srv), users.As("publisher"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })}
		c.Poll = 100 * time.Millisecond
	})
	p.insert(events("e", 2, 2)...)
	await(t, "all are published", func() bool { return r.Stats().Published == 4 })
	p.lose(query[int64](p, "SELECT max(stream_seq) FROM event_outbox"))
	p.age()
	await(t, "one is published again", func() bool { return r.Stats().Published == 5 })
	p.age()
	await(t, "all rows are gone", func() bool { return r.Stats().Deleted == 4 })
	if r.Stats().Lost != 1 {
		t.Errorf("stats are %+v", r.Stats())
	}
	select {
	case err := <-denied:
		t.Errorf("denied: %v", err)
	default:
	}
}

func TestPrivilegesAreThoseThatAreDocumented(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	database := query[string](p, "SELECT current_database()") // roles belong to the whole cluster
	names := strings.NewReplacer("outbox_writer", database+"_writer", "outbox_relay", database+"_relay")
	for _, sql := range []string{
		"CREATE ROLE outbox_writer", "CREATE ROLE outbox_relay",
		"GRANT INSERT ON event_outbox TO outbox_writer", "GRANT USAGE ON SEQUENCE event_outbox_id_seq TO outbox_writer",
		"GRANT SELECT, UPDATE, DELETE ON event_outbox TO outbox_relay", "GRANT SELECT, UPDATE ON event_outbox_lane TO outbox_relay",
	} {
		p.exec(names.Replace(sql))
	}
	writer, relay := as(t, p.pool, database+"_writer"), as(t, p.pool, database+"_relay")
	check.Is(t, outbox.Insert(t.Context(), writer, events("e", 3, 3)...), nil)
	check.Failsf(t, check.Err(writer.Exec(t.Context(), "SELECT FROM event_outbox")), "nothing is forbidden, so nothing is tested")
	r, _ := p.relay(func(c *outbox.Config) { c.Pool, c.SyncInterval, c.Keep = relay, time.Second, time.Second })
	await(t, "all rows are gone", func() bool { return r.Stats().Deleted == 9 })
}
