package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/outbox"
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
		switch msg.Subject() {
		case "events.RESTAURANT.RESERVATION_REQUESTED":
			got := check.Must(contracts.Decode[contracts.Event](msg.Data()))(t)
			delete(full.Event.Extra, "empty")
			check.Equal(t, got, full.Event)
			check.That(t, msg.Headers().Get(nats.MsgIdHdr) == "evt-1" && msg.Headers().Get("traceparent") == "00-1-2-03",
				"headers are %v", msg.Headers())
		case "events.Y.X":
			if want := `{"event_id":"evt 2","event_type":"X","aggregate_type":"Y","not_before":"2026-03-02T12:00:00Z","payload":{"b":1.0,"a":2},"x":5.0,"y":[null,"\ud800"]}`; string(msg.Data()) != want {
				t.Errorf("the message is %s, want %s", msg.Data(), want)
			}
		default:
			t.Errorf("a message on %s", msg.Subject())
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
	check.Equal(t, p.messages()[2].Subject(), "events.own.new", "subject")
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

// A relay starts before there is a server, and goes on after the server or the database was away.
func TestRelayComesBackAfterServerOrDatabaseWasAway(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ready := make(chan bool, 100)
	proxy := natstest.NewProxy(t, p.srv)
	proxy.Partition()
	r, _ := p.relay(func(c *outbox.Config) {
		c.NATSOptions = []nats.Option{proxy.Through(), nats.Timeout(time.Second)}
		c.Poll = 100 * time.Millisecond
		c.Hooks.Ready = func(is bool, _ error) { ready <- is }
	})
	all := events("e", 4, 40)
	p.insert(all[:80]...)
	check.That(t, !<-ready, "it is ready without a server")
	proxy.Heal()
	await(t, "the first are published", func() bool { return r.Stats().Published == 80 })
	proxy.Cut()
	proxy.Heal()
	p.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	await(t, "the database is back", func() bool { return p.pool.Ping(t.Context()) == nil })
	p.insert(all[80:]...)
	await(t, "all are published", func() bool { return r.Stats().Published == int64(len(all)) })
	checkOrder(t, p.stored(), all)
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

// Without its own handler, nats.go writes errors of a connection to the standard error.
func TestErrorsOfTheConnectionAreLogged(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	handlers := make(chan nats.ErrHandler, 1)
	var log strings.Builder
	_, stop := p.relay(func(c *outbox.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.NATSOptions = append(c.NATSOptions, func(o *nats.Options) error { handlers <- o.AsyncErrorCB; return nil })
	})
	handler := <-handlers
	stop()
	handler(nil, nil, nats.ErrSlowConsumer)
	want := "level=WARN msg=" + "outbox.connection_error"
	check.That(t, strings.Contains(log.String(), want), "it logs %q, want %q in it", &log, want)
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

func TestBacklogOfADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	pool := database(t)
	b, err := outbox.ReadBacklog(t.Context(), pool)
	check.That(t, err == nil && b == (outbox.Backlog{}), "%+v, %v; want nothing", b, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.ErrorIs(t, check.Err(outbox.ReadBacklog(ctx, pool)), context.Canceled)
}

// frozenRelay is a relay that waits at a point until its process has been paused and continues. It prints each point that
// it passes.
var frozenRelay = crash.Role[duty]{Name: "frozen relay", Run: relayAndFreeze}

// frozenTimeout is the PublishTimeout of a child. A frozen child keeps its lanes for twice this and 10 seconds.
const frozenTimeout = time.Second

// A signal freezes a relay that holds lanes. Other relays publish from the other lanes in the meantime. A relay that thaws in time
// publishes its rows. If it thaws late, Postgres has given its lanes to another relay, and it publishes none of their rows, not
// even where the stream would take a second copy. Each event is in the stream once, and the events of each key are in order.
func TestFrozenRelayHoldsUpItsLanesAndNoOthers(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"thaws in time": false, "thaws late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.stream(func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond }) // as if it had been frozen for days
			all := events("held", 5, 12)
			p.insert(all...)
			c := frozenRelay.Start(t, duty{Database: p.pool.Config().ConnString(), Point: outbox.PointClaimed, URL: p.srv.URL()})
			c.Await("^" + outbox.PointClaimed + "$")
			c.Pause()
			all = append(all, events("later", 60, 3)...) // of more aggregates, and so in more lanes
			p.insert(all[60:]...)
			free := query[int](p, "SELECT count(*) FROM event_outbox WHERE lane NOT IN (SELECT lane FROM event_outbox WHERE event_id LIKE 'held-%')")
			r, _ := p.relay(func(c *outbox.Config) { c.Poll = 100 * time.Millisecond })
			await(t, "the other lanes are published", func() bool { return p.left() == len(all)-free })
			n := len(p.messages())
			check.That(t, n == free && free != 0, "%d events are in the stream, want the %d of the other lanes", n, free)
			if !late {
				c.Continue()
			}
			await(t, "all are published", func() bool { return p.left() == 0 }) // a relay counts a row a moment after it is deleted
			if late {
				await(t, "it has counted all: the frozen one has lost its lanes", func() bool { return r.Stats().Published == int64(len(all)) })
				p.forgets()
				c.Continue()
				c.Await("^" + outbox.PointAcknowledged + "$") // it would have published by now
			} else if r.Stats().Published == int64(len(all)) {
				t.Error("the frozen one has published nothing: it was not in time")
			}
			checkOrder(t, p.events(), all)
		})
	}
}

// forgets waits until the stream takes a second copy of the messages that it holds.
func (p *place) forgets() {
	p.Helper()
	again := func() bool {
		ack := check.Must(p.js.Publish(p.Context(), "events.OTHER.X", []byte(`{"event_id":"probe"}`), jetstream.WithMsgID("probe")))(p)
		return !ack.Duplicate
	}
	again()
	await(p, "it has forgotten", again)
}

// events returns the ids of the events in the stream, in order.
func (p *place) events() []string {
	p.Helper()
	return slices.DeleteFunc(p.stored(), func(id string) bool { return id == "probe" })
}

func relayAndFreeze(ctx context.Context, d duty) error {
	pool, err := pgxpool.New(ctx, d.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	thawed := make(chan os.Signal, 1)
	signal.Notify(thawed, syscall.SIGCONT)
	waiting := true
	cfg := outbox.Config{
		BatchSize: 8, Concurrency: 1, Logger: slog.New(slog.DiscardHandler), NATSURL: d.URL, Pool: pool,
		PublishTimeout: frozenTimeout,
	}
	r, err := outbox.New(ctx, cfg.Passing(func(point string) {
		fmt.Fprintln(os.Stdout, point)
		if waiting && point == d.Point { // there is one batch at a time
			waiting = false
			<-thawed
		}
	}))
	if err != nil {
		return err
	}
	r.Run(ctx)
	return nil
}

// The leader of the stream steps down, then stops, and then is killed, while two relays publish to three nodes. No event is lost,
// overtaken, or in the stream twice.
func TestRelaysOnAClusterWhoseLeaderGoes(t *testing.T) {
	t.Parallel()
	pool := database(t)
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	p := &place{TB: t, pool: pool, js: js}
	p.stream(func(s *jetstream.StreamConfig) { s.Replicas = 3 })
	for range 2 {
		r, err := outbox.New(t.Context(), outbox.Config{
			BatchSize: 16, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), NATSURL: c.URLs(), Poll: time.Second, Pool: pool, PublishTimeout: 2 * time.Second,
		})
		check.OK(t, err)
		run(t, r)
	}
	// leave stops the leader by how, and starts it again.
	leave := func(how func(*natsrun.Node) error) {
		leader, err := c.StreamLeader(t.Context(), contracts.StreamEvents)
		if err == nil {
			err = how(leader)
		}
		if err == nil {
			err = leader.Start(t.Context())
		}
		check.ErrorIs(t, err, nil)
	}
	var all []outbox.Event
	published := func() int { return len(all) - p.left() }
	for round, disturb := range []func(){
		func() {
			check.ErrorIs(t, c.StepDown(t.Context(), contracts.StreamEvents), nil)
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

// mute dials connections to the database that strike makes silent: they lose all bytes but are not closed, as when the machine of
// the database is gone.
type mute struct {
	mu    sync.Mutex
	conns []*mutable
}

type mutable struct {
	net.Conn

	gone chan struct{} // closed by strike
}

func (m *mute) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &mutable{Conn: conn, gone: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, c)
	return c, nil
}

func (m *mute) strike() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		close(c.gone)
	}
	m.conns = nil
}

// Read loses all bytes after strike. It ends by its deadline, or by Close.
func (c *mutable) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		select {
		case <-c.gone:
			if err != nil {
				return 0, err
			}
		default:
			return n, err
		}
	}
}

// Write loses all bytes after strike.
func (c *mutable) Write(b []byte) (int, error) {
	select {
	case <-c.gone:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// When a database neither answers nor closes its connections, each part of the relay uses a new connection after the bound of an
// answer. Rows that were in flight are published.
func TestADatabaseThatFallsSilentIsAskedOverOtherConnections(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	silent := &mute{}
	cfg := p.config()
	cfg.Pool, cfg.Poll = again(t, p.pool, func(c *pgx.ConnConfig) { c.DialFunc = silent.dial }), 50*time.Millisecond
	r := check.Must(outbox.New(t.Context(), cfg.Answering(time.Second)))(t)
	run(t, r)
	all := events("e", 4, 30)
	for n := range 3 {
		p.insert(all[40*n : 40*(n+1)]...)
		await(t, "some are published", func() bool { return r.Stats().Published >= int64(40*n+20) })
		silent.strike()
	}
	await(t, "all are published", func() bool { return r.Stats().Published == int64(len(all)) })
	checkOrder(t, p.stored(), all)
}

// A relay process is killed at each point of its work, also between an acknowledgement and the commit, and another relay goes on.
// No event is lost or in the stream twice, and the order of each key stays.
func TestKilledRelayLosesNothingAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		point string
		after int
	}{
		{outbox.PointClaimed, 1},
		{outbox.PointAcknowledged, 1},
		{outbox.PointAcknowledged, 5},
		{outbox.PointMarked, 3},
		{outbox.PointCommitted, 3},
	} {
		t.Run(fmt.Sprint(test.point, " ", test.after), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			all := events("e", 5, 12)
			p.insert(all[:40]...)
			mortalRelay.Start(t, duty{After: test.after, Database: p.pool.Config().ConnString(), Point: test.point, URL: p.srv.URL()}).Died()
			before := len(p.messages())
			p.insert(all[40:]...)
			left := int64(p.left())
			r, _ := p.relay(func(c *outbox.Config) {
				c.Poll = 100 * time.Millisecond // the locks of the killed process end when Postgres notices
			})
			await(t, "all rows are counted, a moment after they are gone", func() bool { return r.Stats().Published == left })
			ids := p.stored()
			checkOrder(t, ids, all)
			s := r.Stats()
			again := test.point == outbox.PointAcknowledged || test.point == outbox.PointMarked
			check.That(t, again == (s.Duplicates > 0), "%d were in the stream and %d of them were published again", before, s.Duplicates)
			check.That(t, s.SetAside == 0, "stats are %+v", s)
		})
	}
}

// mortalRelay is a relay that kills its process at a point.
var mortalRelay = crash.Role[duty]{Name: "relay", Run: relayAndDie}

// duty is the task of a relay process.
type duty struct {
	After    int // it dies when it passes Point for this time
	Database string
	Point    string
	URL      string
}

func relayAndDie(ctx context.Context, d duty) error {
	pool, err := pgxpool.New(ctx, d.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	cfg := outbox.Config{BatchSize: 8, Concurrency: 1, Logger: slog.New(slog.DiscardHandler), NATSURL: d.URL, Pool: pool}
	r, err := outbox.New(ctx, cfg.Passing(testbed.DieAt(d.Point, d.After)))
	if err != nil {
		return err
	}
	r.Run(ctx)
	return nil
}
