package outbox_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/documented"
	"github.com/expediter-io/expediter/pkg/outbox"
)

// The permissions of publishers in production suffice for a relay.
func TestRelayNeedsNoMoreThanItIsPermitted(t *testing.T) {
	t.Parallel()
	pool := database(t)
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	admin, _ := natstest.Connect(t, srv, users.As("admin"))
	p := &place{TB: t, pool: pool, srv: srv, js: natstest.InAccount(t, admin, "NOTIFIER")}
	p.stream(nil)
	denied := make(chan error, 100)
	r, _ := p.relay(func(c *outbox.Config) {
		c.NATSOptions = []nats.Option{nats.InProcessServer(srv), users.As("publisher"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })}
		c.Poll = 100 * time.Millisecond
	})
	p.insert(events("e", 2, 2)...)
	await(t, "all are published", func() bool { return r.Stats().Published == 4 })
	p.insert(event("e-0-0", "0")) // again: the relay reads the stream's message under its id
	await(t, "the copy is known", func() bool { return r.Stats().Duplicates == 1 })
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
	r, _ := p.relay(func(c *outbox.Config) { c.Pool = relay })
	await(t, "all rows are gone", func() bool { return r.Stats().Published == 9 })
}

// Metrics show the work of a relay and the backlog of the table, also while the relay cannot publish.
func TestMetricsShowWorkAndBacklog(t *testing.T) {
	t.Parallel()
	p, began := newPlace(t), time.Now()
	p.stream(func(c *jetstream.StreamConfig) { c.Subjects = []string{"events.RESTAURANT.>"} }) // no stream takes other subjects
	exports, err := export.Start(t.Context(), export.Config{Service: "outbox"})
	check.OK(t, err)
	defer func() {
		check.Is(t, exports.Stop(context.WithoutCancel(t.Context())), nil)
	}()
	page := func() string {
		w := httptest.NewRecorder()
		exports.Metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		return w.Body.String()
	}
	scrape := func() map[string]float64 {
		t.Helper()
		values := map[string]float64{}
		for _, found := range regexp.MustCompile(`(?m)^(outbox_\w+?)(?:_total)?(?:\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(page(), -1) {
			values[found[1]], err = strconv.ParseFloat(found[2], 64)
			check.OK(t, err)
		}
		return values
	}
	bad, invalid := event("bad", "5"), event("invalid", "6")
	bad.AggregateType = "NOBODY"
	p.insert(append(events("e", 3, 4), bad, invalid)...)
	p.exec("UPDATE event_outbox SET event_type = '' WHERE event_id = 'invalid'")
	p.exec("UPDATE event_outbox SET created_at = now() - interval '1 hour' WHERE event_id = 'bad'")
	r, stop := p.relay(func(c *outbox.Config) { c.Meters = exports.Meters })
	await(t, "one is refused, one is set aside, and the others are gone", func() bool {
		s := r.Stats()
		return s.Refused > 0 && s.SetAside == 1 && s.Published == 12
	})
	got := scrape()
	documented.Metrics(t, page(), func(name string) bool { return strings.HasPrefix(name, "outbox_") })
	for name, want := range map[string]float64{
		"outbox_backlog": 1, "outbox_backlog_set_aside": 1, "outbox_duplicates": 0,
		"outbox_published": 12, "outbox_set_aside": 1,
	} {
		value, ok := got[name]
		check.That(t, ok && value == want, "%s is %v, %t; want %v", name, value, ok, want)
	}
	age := got["outbox_backlog_age_seconds"]
	check.That(t, !(age < 3600) && !(age > 3600+patience.Seconds()), "the oldest waits for %v s, want an hour: %v", age, got)
	if s := r.Stats(); s.LastError == "" || got["outbox_refused"] < 1 || got["outbox_last_error_time_seconds"] < float64(began.Unix()) {
		t.Errorf("the last error is %q at %s: %v", s.LastError, s.LastErrorAt, got)
	}
	p.exec("ALTER TABLE event_outbox RENAME TO away")
	got = scrape()
	_, ok := got["outbox_backlog"]
	check.That(t, !ok && got["outbox_published"] == 12, "a database that does not answer has a backlog: %v", got)
	p.exec("ALTER TABLE away RENAME TO event_outbox")
	stop()
	check.Same(t, "a relay that has ended still shows", len(scrape()), 0)
}

func TestBacklogOfADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	pool := database(t)
	b, err := outbox.ReadBacklog(t.Context(), pool)
	check.That(t, err == nil && b == (outbox.Backlog{}), "%+v, %v; want nothing", b, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Is(t, check.Err(outbox.ReadBacklog(ctx, pool)), context.Canceled)
}
