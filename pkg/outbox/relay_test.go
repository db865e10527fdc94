package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/testbed"
	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

// Committed events reach the stream as they were written; events that were rolled back do not. Rows are deleted once they
// were acknowledged.
func TestCommittedEventsReachTheStream(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r, _ := p.relay(func(c *outbox.Config) {
		c.Hooks.Sending = func(header nats.Header) func(error) {
			if header.Get("traceparent") != "" {
				return nil
			}
			panic("a hook that panics")
		}
	})
	full := event("evt-1", "5")
	full.Event.UserID = "u1"
	full.Event.Extra = map[string]json.RawMessage{
		"recipientType": []byte(`"CUSTOMER"`), "n": []byte("12345678901234567890.0"), "none": []byte("null"), "empty": nil,
		"": []byte(`{"z":"<\ud83d\u0000>","a":[1e400]}`),
	}
	full.Event.OccurredAt = time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC)
	full.Event.NotBefore = time.Date(2026, 3, 2, 12, 0, 0, 1000, time.UTC)
	full.Headers = map[string]string{"traceparent": "00-1-2-03"}
	p.insert(full)
	tx := check.Must(p.pool.Begin(t.Context()))(t)
	check.OK(t, outbox.Insert(t.Context(), tx, event("rolled-back", "5")))
	check.OK(t, tx.Rollback(t.Context()))
	p.exec(`INSERT INTO event_outbox (event_id, event_type, aggregate_type, not_before, payload, extra)
		VALUES ('evt 2', 'X', 'Y', '2026-03-02T13:00:00+01:00', '{"b": 1.0, "a": 2}', '{"y": [null, "\ud800"], "x": 5.0}')`)
	await(t, "two rows are published", func() bool { return r.Stats().Published == 2 })
	check.Equal(t, query[int](p, "SELECT count(*) FROM event_outbox"), 0, "rows are left")
	all := p.messages()
	check.Require(t, len(all) == 2, "%d messages, want 2", len(all))
	for _, msg := range all {
		switch msg.Subject {
		case "events.RESTAURANT.RESERVATION_REQUESTED":
			got := check.Must(contracts.Decode[contracts.Event](msg.Data))(t)
			delete(full.Event.Extra, "empty")
			check.Equal(t, got, full.Event)
			check.That(t, msg.Header.Get(nats.MsgIdHdr) == "evt-1" && msg.Header.Get("traceparent") == "00-1-2-03",
				"headers are %v", msg.Header)
		case "events.Y.X":
			if want := `{"event_id":"evt 2","event_type":"X","aggregate_type":"Y","not_before":"2026-03-02T12:00:00Z","payload":{"b":1.0,"a":2},"x":5.0,"y":[null,"\ud800"]}`; string(msg.Data) != want {
				t.Errorf("the message is %s, want %s", msg.Data, want)
			}
		default:
			t.Errorf("a message on %s", msg.Subject)
		}
	}
	s := r.Stats()
	check.That(t, s.Published == 2 && s.Duplicates+s.SetAside == 0, "stats are %+v", s)
}

// A program chooses the subjects of its events, and which events are the same.
func TestSubjectAndFingerprintAreTheProgramsChoice(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	same, other := event("same", "5"), event("other", "5")
	p.insert(same, other)
	there := check.Must(contracts.NewPublisher(p.js, contracts.PublisherConfig{}))(t)
	for _, e := range []contracts.Event{same.Event, other.Event} { // which another program has published
		e.Extra = map[string]json.RawMessage{"version": []byte(`"` + e.EventID + `"`)}
		check.OK(t, check.Err(there.Publish(t.Context(), e)))
	}
	p.insert(event("new", "5"), event("panics", "5"))
	r, _ := p.relay(func(c *outbox.Config) {
		c.Fingerprint = func(body []byte) (string, error) {
			e, err := contracts.Decode[contracts.Event](body)
			if string(e.Extra["version"]) == `"same"` {
				e.Extra = nil
			}
			return fmt.Sprint(e.Extra), err
		}
		c.Subject = func(e contracts.Event) (string, error) {
			if e.EventID == "panics" {
				panic("a subject that panics")
			}
			return "events.own." + e.EventID, nil
		}
	})
	await(t, "all are out of the way", func() bool { s := r.Stats(); return s.Published == 2 && s.SetAside == 2 })
	check.Contains(t, query[string](p, "SELECT reason FROM event_outbox WHERE event_id = 'panics'"), "panicked")
	check.Equal(t, r.Stats().Duplicates, 1, "duplicates")
	check.Equal(t, p.stored(), []string{"same", "other", "new"})
	check.Equal(t, p.messages()[2].Subject, "events.own.new", "subject")
}

// With several writers and two relays, the events of each key are published in the order in which their transactions committed.
func TestEventsOfAKeyComeInTheOrderOfTheirCommits(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.exec("CREATE TABLE counter (key int PRIMARY KEY, n int NOT NULL)")
	p.exec("CREATE TABLE committed (n int, key int, event_id text)")
	const keys, writers, each = 5, 6, 40
	for key := range keys {
		p.exec("INSERT INTO counter VALUES ($1, 0)", key)
	}
	small := func(c *outbox.Config) { c.BatchSize = 16 }
	one, _ := p.relay(small)
	two, _ := p.relay(small)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				key := (w + i) % keys
				// Only the outbox orders these: each transaction draws its number after the insert, and so in the order of the commits.
				err := pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
					if err := outbox.Insert(t.Context(), tx, event(fmt.Sprintf("%d-%d-%d", key, w, i), fmt.Sprint(key))); err != nil {
						return err
					}
					_, err := tx.Exec(t.Context(), `WITH n AS (UPDATE counter SET n = n + 1 WHERE key = $1 RETURNING n)
						INSERT INTO committed SELECT n, $1, $2 FROM n`, key, fmt.Sprintf("%d-%d-%d", key, w, i))
					return err
				})
				check.ErrorIs(t, err, nil)
			}
		})
	}
	group.Wait()
	await(t, "all are published", func() bool { return one.Stats().Published+two.Stats().Published == writers*each })
	rows := check.Must(p.pool.Query(t.Context(), "SELECT key::text, event_id FROM committed ORDER BY key, n"))(t)
	var want []outbox.Event
	var key, id string
	check.OK(t, check.Err(pgx.ForEachRow(rows, []any{&key, &id}, func() error {
		want = append(want, event(id, key))
		return nil
	})))
	checkOrder(t, p.stored(), want)
	if one.Stats().Published == 0 || two.Stats().Published == 0 {
		t.Logf("one relay did it all: %+v, %+v", one.Stats(), two.Stats())
	}
}

// A transaction that commits late makes a row visible whose id is lower than ids that were published already. The row is not
// skipped. A transaction with the same key waits until the late one has ended, to keep the order.
func TestLateCommitIsNeitherSkippedNorOvertaken(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r, _ := p.relay(nil)
	late := check.Must(p.pool.Begin(t.Context()))(t)
	check.OK(t, outbox.Insert(t.Context(), late, event("late", "5")))
	var id int64
	check.OK(t, late.QueryRow(t.Context(), "SELECT id FROM event_outbox WHERE event_id = 'late'").Scan(&id))
	var other int64
	check.OK(t, pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
		if err := outbox.Insert(t.Context(), tx, event("early", "6")); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), "SELECT id FROM event_outbox WHERE event_id = 'early'").Scan(&other)
	}))
	await(t, "the other is published", func() bool { return r.Stats().Published == 1 })
	check.That(t, other >= id, "ids are %d and %d: nothing is tested", id, other)
	blocked := make(chan error, 1)
	go func() {
		blocked <- pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error { return outbox.Insert(t.Context(), tx, event("after", "5")) })
	}()
	await(t, "the insert with the same key waits", func() bool {
		return query[int](p, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 1
	})
	check.OK(t, outbox.Insert(t.Context(), late, event("late-2", "5"))) // before the insert that waits
	check.OK(t, late.Commit(t.Context()))
	check.OK(t, <-blocked)
	await(t, "all are published", func() bool { return r.Stats().Published == 4 })
	check.Equal(t, p.stored(), []string{"early", "late", "late-2", "after"})
}

// A notification wakes the relay, however rarely it looks for rows. When its listening connection is cut, it listens again.
// Without notifications, it looks for rows.
func TestRowsAreFoundWithAndWithoutNotifications(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r, stop := p.relay(nil)                 // looks once an hour
	last := []string{"LISTEN event_outbox"} // the last statement of a listening connection
	listening := func() []int32 {
		rows, err := p.pool.Query(t.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query = ANY($1)", last)
		check.OK(t, err)
		return check.Must(pgx.CollectRows(rows, pgx.RowTo[int32]))(t)
	}
	await(t, "it listens", func() bool { return len(listening()) == 1 })
	for i := range 3 {
		p.insert(event(fmt.Sprint("told-", i), ""))
		await(t, "it is published", func() bool { return r.Stats().Published == int64(i+1) })
	}
	first := listening()[0]
	p.exec("SELECT pg_terminate_backend($1)", first)
	p.insert(event("cut", ""))
	await(t, "it is published", func() bool { return r.Stats().Published == 4 })
	await(t, "it listens again", func() bool { pids := listening(); return len(pids) == 1 && pids[0] != first })
	p.insert(event("told-again", ""))
	await(t, "it is published", func() bool { return r.Stats().Published == 5 })
	stop()
	p.exec("DROP TRIGGER event_outbox_wake ON event_outbox")
	looking, _ := p.relay(func(c *outbox.Config) { c.Poll = 50 * time.Millisecond })
	last = append(last, "-- ping") // every Poll
	await(t, "it listens", func() bool { return len(listening()) == 1 })
	for i := range 3 {
		p.insert(event(fmt.Sprint("not-told-", i), ""))
		await(t, "it is published", func() bool { return looking.Stats().Published == int64(i+1) })
	}
}

// A relay that is stopped marks the rows that are in flight: the next relay publishes none of them again.
func TestStopFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	all := events("e", 10, 60)
	p.insert(all...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := p.config()
	cfg.BatchSize = 64
	first, err := outbox.New(t.Context(), cfg.Passing(func(point string) {
		if point == outbox.PointClaimed {
			cancel()
		}
	}))
	check.OK(t, err)
	first.Run(ctx)
	published := len(all) - p.left()
	check.That(t, published != 0 && published == len(p.messages()),
		"%d rows are deleted, %d are in the stream", published, len(p.messages()))
	next, _ := p.relay(nil)
	await(t, "all are published", func() bool { return p.left() == 0 })
	check.Equal(t, next.Stats().Duplicates, 0, "were published twice")
	checkOrder(t, p.stored(), all)
}

func TestSchemaIsAskedFor(t *testing.T) {
	t.Parallel()
	pool := emptyDatabase(t)
	check.ErrorIs(t, check.Err(outbox.New(t.Context(), outbox.Config{Pool: pool})), outbox.ErrNoSchema)
	for range 2 {
		check.OK(t, outbox.Migrate(t.Context(), pool))
	}
	check.ErrorIs(t, check.Err(outbox.New(t.Context(), outbox.Config{Pool: pool})), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.That(t, outbox.Migrate(ctx, pool) != nil, "a cancelled migration is none")
}

// Another encoding of a database or a connection is refused by name: Postgres would convert what is written and read.
func TestEncodingOtherThanUTF8IsRefused(t *testing.T) {
	t.Parallel()
	pool := database(t)
	refuses := func(pool *pgxpool.Pool, name string) {
		t.Helper()
		_, err := outbox.New(t.Context(), outbox.Config{Pool: pool})
		for _, err := range []error{err, outbox.Migrate(t.Context(), pool)} {
			check.ErrorIs(t, err, outbox.ErrEncoding)
			check.ErrorContains(t, err, name, pool.Config().ConnConfig.Database)
		}
	}
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		name := pool.Config().ConnConfig.Database + strings.ToLower(encoding)
		check.OK(t, check.Err(pool.Exec(t.Context(), "CREATE DATABASE "+name+" ENCODING '"+encoding+"' LOCALE 'C' TEMPLATE template0")))
		other := again(t, pool, func(c *pgx.ConnConfig) { c.Database = name })
		refuses(other, encoding)
		check.ErrorContains(t, check.Err(other.Exec(t.Context(), outbox.Schema)), encoding)
	}
	changed := again(t, pool, func(c *pgx.ConnConfig) { c.RuntimeParams["client_encoding"] = "LATIN1" })
	refuses(changed, "LATIN1")
	check.ErrorIs(t, outbox.Insert(t.Context(), changed, event("é", "5")), outbox.ErrEncoding)
}

func TestKeyIsTheAggregateUnlessTheEventHasItsOwn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	aggregate, none, own, unordered := event("aggregate", "5"), event("none", ""), event("own", "5"), event("unordered", "5")
	own.OrderingKey, unordered.Unordered = "mine", true
	p.insert(aggregate, none, own, unordered)
	p.exec(`INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id)
		VALUES ('sql', 'X', 'RESTAURANT', '5'), ('sql none', 'X', 'RESTAURANT', '')`)
	for id, want := range map[string]string{
		"aggregate": "RESTAURANT/5", "none": "", "own": "mine", "unordered": "", "sql": "RESTAURANT/5", "sql none": "",
	} {
		check.Equal(t, query[string](p, "SELECT ordering_key FROM event_outbox WHERE event_id = $1", id), want, fmt.Sprintf("the key of %s", id))
	}
	check.Equal(t, query[int](p, "SELECT count(DISTINCT lane) FROM event_outbox WHERE ordering_key = 'RESTAURANT/5'"), 1,
		"one key is in lanes")
}

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
	as := func(role string) *pgxpool.Pool {
		return again(t, p.pool, func(c *pgx.ConnConfig) { c.RuntimeParams["role"] = database + role })
	}
	writer, relay := as("_writer"), as("_relay")
	check.ErrorIs(t, outbox.Insert(t.Context(), writer, events("e", 3, 3)...), nil)
	check.That(t, check.Err(writer.Exec(t.Context(), "SELECT FROM event_outbox")) != nil, "nothing is forbidden, so nothing is tested")
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
		check.ErrorIs(t, exports.Stop(context.WithoutCancel(t.Context())), nil)
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
	bad.Event.AggregateType = "NOBODY"
	p.insert(append(events("e", 3, 4), bad, invalid)...)
	p.exec("UPDATE event_outbox SET event_type = '' WHERE event_id = 'invalid'")
	p.exec("UPDATE event_outbox SET created_at = now() - interval '1 hour' WHERE event_id = 'bad'")
	r, stop := p.relay(func(c *outbox.Config) { c.Meters = exports.Meters })
	await(t, "one is refused, one is set aside, and the others are gone", func() bool {
		s := r.Stats()
		return s.Refused > 0 && s.SetAside == 1 && s.Published == 12
	})
	got := scrape()
	testbed.Metrics(t, page(), func(name string) bool { return strings.HasPrefix(name, "outbox_") })
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
	check.Equal(t, len(scrape()), 0, "a relay that has ended still shows")
}

// silence dials connections that lose all bytes from the next strike on, and are not closed, as when the machine of the database is gone.
type silence struct{ strikes atomic.Int64 }

type silentConn struct {
	net.Conn

	from int64 // the strike that silences it
	of   *silence
}

func (s *silence) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &silentConn{conn, s.strikes.Load() + 1, s}, err
}

func (c *silentConn) isSilent() bool { return c.of.strikes.Load() >= c.from }

// Read ends by its deadline or by Close once the connection is silent.
func (c *silentConn) Read(b []byte) (n int, err error) {
	for err == nil {
		if n, err = c.Conn.Read(b); !c.isSilent() {
			return n, err
		}
	}
	return 0, err
}

func (c *silentConn) Write(b []byte) (int, error) {
	if c.isSilent() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// When a database neither answers nor closes its connections, each part of the relay uses a new connection after the bound of an
// answer. Rows that were in flight are published.
func TestADatabaseThatFallsSilentIsAskedOverOtherConnections(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	silent := &silence{}
	cfg := p.config()
	cfg.Pool, cfg.Poll = again(t, p.pool, func(c *pgx.ConnConfig) { c.DialFunc = silent.dial }), 50*time.Millisecond
	r := check.Must(outbox.New(t.Context(), cfg.Answering(time.Second)))(t)
	run(t, r)
	all := events("e", 4, 30)
	for n := range 3 {
		p.insert(all[40*n : 40*(n+1)]...)
		await(t, "some are published", func() bool { return r.Stats().Published >= int64(40*n+20) })
		silent.strikes.Add(1)
	}
	await(t, "all are published", func() bool { return r.Stats().Published == int64(len(all)) })
	checkOrder(t, p.stored(), all)
}

func TestMain(m *testing.M) {
	relays.Main()
	natstest.Main(m, 4, goleak.Cleanup(func(code int) {
		outboxtest.Stop()
		os.Exit(code)
	}))
}

// patience bounds the waits of a test.
const patience = 2 * time.Minute

// place is a database and a server with the stream of events.
type place struct {
	testing.TB

	pool *pgxpool.Pool
	srv  *natsrun.Server
	js   jetstream.JetStream
}

func newPlace(t testing.TB) *place {
	t.Helper()
	pool := database(t) // first, because it may skip the test
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	p := &place{TB: t, pool: pool, srv: srv, js: js}
	p.stream(nil)
	return p
}

// stream creates the stream of events as contracts declares it, with a change if there is one.
func (p *place) stream(change func(*jetstream.StreamConfig)) {
	p.Helper()
	for _, c := range contracts.Streams(contracts.AssetOptions{MaxBytes: 1 << 30}) {
		if c.Name != contracts.StreamEvents {
			continue
		}
		if change != nil {
			change(&c)
		}
		check.OK(p, check.Err(p.js.CreateOrUpdateStream(p.Context(), c)))
	}
}

// config returns the configuration of a relay.
func (p *place) config() outbox.Config {
	return outbox.Config{
		Logger: slog.New(slog.NewTextHandler(p.Output(), nil)), NATSOptions: []nats.Option{nats.InProcessServer(p.srv)},
		Poll: time.Hour, Pool: p.pool,
	}
}

// relay starts a relay that runs until the test ends, or until stop is called.
func (p *place) relay(change func(*outbox.Config)) (r *outbox.Relay, stop func()) {
	p.Helper()
	cfg := p.config()
	if change != nil {
		change(&cfg)
	}
	r = check.Must(outbox.New(p.Context(), cfg))(p)
	return r, run(p, r)
}

// run runs a relay until the test ends, or until stop is called.
func run(t testing.TB, r *outbox.Relay) (stop func()) {
	t.Helper()
	return natstest.Background(t, func(ctx context.Context) error {
		r.Run(ctx)
		return nil
	})
}

// event returns an event of an aggregate.
func event(id, aggregate string) outbox.Event {
	return outbox.Event{Event: contracts.Event{
		EventID: id, EventType: "RESERVATION_REQUESTED", AggregateType: "RESTAURANT", AggregateID: aggregate,
		Payload: json.RawMessage(`{"guests":4}`),
	}}
}

// events returns some events of each of several aggregates, in turn.
func events(prefix string, aggregates, each int) []outbox.Event {
	var all []outbox.Event
	for n := range each {
		for a := range aggregates {
			all = append(all, event(fmt.Sprintf("%s-%d-%d", prefix, a, n), fmt.Sprint(a)))
		}
	}
	return all
}

// insert commits events in one transaction.
func (p *place) insert(all ...outbox.Event) {
	p.Helper()
	check.OK(p, pgx.BeginFunc(p.Context(), p.pool, func(tx pgx.Tx) error { return outbox.Insert(p.Context(), tx, all...) }))
}

// exec runs a statement.
func (p *place) exec(sql string, args ...any) {
	p.Helper()
	check.OK(p, check.Err(p.pool.Exec(p.Context(), sql, args...)))
}

// query returns one value.
func query[T any](p *place, sql string, args ...any) T {
	p.Helper()
	var value T
	err := p.pool.QueryRow(p.Context(), sql, args...).Scan(&value)
	check.Require(p, err == nil, "%s: %v", sql, err)
	return value
}

// left returns the number of rows in the table.
func (p *place) left() int {
	p.Helper()
	return query[int](p, "SELECT count(*) FROM event_outbox")
}

// count returns the number of rows in a state.
func (p *place) count(state string) int {
	p.Helper()
	return query[int](p, "SELECT count(*) FROM event_outbox WHERE state = $1", state)
}

// await waits until a condition is true.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	check.Until(t, patience, what, is)
}

// stored returns the ids of the messages in the stream, in order.
func (p *place) stored() []string {
	p.Helper()
	var ids []string
	for _, msg := range p.messages() {
		var e contracts.Event
		check.OK(p, json.Unmarshal(msg.Data, &e))
		ids = append(ids, e.EventID)
	}
	return ids
}

// messages returns all messages in the stream, in order, also while a cluster elects a leader.
func (p *place) messages() (all []*jetstream.RawStreamMsg) {
	p.Helper()
	check.OK(p, natstest.UntilAnswered(p, func(ctx context.Context) error {
		stream, err := p.js.Stream(ctx, contracts.StreamEvents)
		for err == nil && len(all) < int(stream.CachedInfo().State.LastSeq) {
			var msg *jetstream.RawStreamMsg
			if msg, err = stream.GetMsg(ctx, uint64(len(all)+1)); err == nil {
				all = append(all, msg)
			} else if errors.Is(err, jetstream.ErrMsgNotFound) { // a replica that is behind
				err = nats.ErrTimeout
			}
		}
		return err
	}))
	return all
}

// checkOrder fails unless ids are exactly the ids of the events, in the order of the events for each aggregate.
func checkOrder(t testing.TB, ids []string, want []outbox.Event) {
	t.Helper()
	place := map[string]int{}
	for i, id := range ids {
		_, ok := place[id]
		check.That(t, !ok, "%s is there twice", id)
		place[id] = i
	}
	last := map[string]int{}
	for _, e := range want {
		at, ok := place[e.Event.EventID]
		if !ok {
			t.Errorf("%s is lost", e.Event.EventID)
			continue
		}
		before, ok := last[e.Event.AggregateID]
		check.That(t, !ok || at >= before, "%s is before another of %s that went first", e.Event.EventID, e.Event.AggregateID)
		last[e.Event.AggregateID] = at
	}
	check.Equal(t, len(ids), len(want), "events")
}

// again returns another pool, with a change to its connections.
func again(t testing.TB, pool *pgxpool.Pool, change func(*pgx.ConnConfig)) *pgxpool.Pool {
	t.Helper()
	config := pool.Config()
	change(config.ConnConfig)
	other := check.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(other.Close)
	return other
}

// database returns a new database, with the outbox in it.
func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := emptyDatabase(t)
	check.OK(t, outbox.Migrate(t.Context(), pool))
	return pool
}

// emptyDatabase returns a new database.
func emptyDatabase(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := check.Must(pgxpool.New(t.Context(), outboxtest.Database(t, testbed.Postgres.Find(t))+" pool_max_conns=8"))(t)
	t.Cleanup(pool.Close)
	return pool
}
