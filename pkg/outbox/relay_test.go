package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
)

// Committed events reach the stream as they were written; events that were rolled back do not. Rows are deleted once they
// were acknowledged.
func TestCommittedEventsReachTheStream(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r, _ := p.relay(nil)
	full := event("evt-1", "5")
	full.RecipientType, full.UserID, full.RestaurantID = "CUSTOMER", "u1", json.RawMessage("5")
	full.OccurredAt = time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC)
	full.NotBefore = time.Date(2026, 3, 2, 12, 0, 0, 1000, time.UTC)
	full.Recipients = []contracts.Recipient{{UserID: "u1", RecipientType: "CUSTOMER"}}
	full.Headers = map[string]string{"traceparent": "00-1-2-03"}
	p.insert(full)
	tx := check.Must(p.pool.Begin(t.Context()))(t)
	check.OK(t, outbox.Insert(t.Context(), tx, event("rolled-back", "5")))
	check.OK(t, tx.Rollback(t.Context()))
	p.exec(`INSERT INTO event_outbox (event_id, event_type, aggregate_type, not_before, payload)
		VALUES ('evt 2', 'X', 'Y', '2026-03-02T13:00:00+01:00', '{"b": 1.0, "a": 2}')`)
	await(t, "two rows are published", func() bool { return r.Stats().Published == 2 })
	check.Same(t, "rows are left", query[int](p, "SELECT count(*) FROM event_outbox"), 0)
	all := p.messages()
	check.Require(t, len(all) == 2, "%d messages, want 2", len(all))
	for _, msg := range all {
		switch msg.Subject() {
		case "events.RESTAURANT.RESERVATION_REQUESTED":
			got := check.Must(contracts.Decode[contracts.Event](msg.Data()))(t)
			check.Equal(t, full.Event, got)
			check.That(t, msg.Headers().Get(nats.MsgIdHdr) == "evt-1" && msg.Headers().Get("traceparent") == "00-1-2-03",
				"headers are %v", msg.Headers())
		case "events.Y.X":
			if want := `{"event_id":"evt 2","event_type":"X","aggregate_type":"Y","not_before":"2026-03-02T12:00:00Z","payload":{"b":1.0,"a":2}}`; string(msg.Data()) != want {
				t.Errorf("the message is %s, want %s", msg.Data(), want)
			}
		default:
			t.Errorf("a message on %s", msg.Subject())
		}
	}
	s := r.Stats()
	check.That(t, s.Published == 2 && s.Duplicates+s.SetAside == 0, "stats are %+v", s)
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
				check.Is(t, err, nil)
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
	if err := outbox.Insert(t.Context(), late, event("late-2", "5")); err != nil { // before the insert that waits
		t.Fatal(err)
	}
	check.OK(t, late.Commit(t.Context()))
	check.OK(t, <-blocked)
	await(t, "all are published", func() bool { return r.Stats().Published == 4 })
	check.Equal(t, []string{"early", "late", "late-2", "after"}, p.stored())
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
	check.Same(t, "were published twice", next.Stats().Duplicates, 0)
	checkOrder(t, p.stored(), all)
}

func TestSchemaIsAskedFor(t *testing.T) {
	t.Parallel()
	pool := emptyDatabase(t)
	check.Is(t, check.Err(outbox.New(t.Context(), outbox.Config{Pool: pool})), outbox.ErrNoSchema)
	for range 2 {
		check.OK(t, outbox.Migrate(t.Context(), pool))
	}
	check.Is(t, check.Err(outbox.New(t.Context(), outbox.Config{Pool: pool})), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Failsf(t, outbox.Migrate(ctx, pool), "a cancelled migration is none")
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
		check.Same(t, fmt.Sprintf("the key of %s", id), query[string](p, "SELECT ordering_key FROM event_outbox WHERE event_id = $1", id), want)
	}
	check.Same(t, "one key is in lanes", query[int](p, "SELECT count(DISTINCT lane) FROM event_outbox WHERE ordering_key = 'RESTAURANT/5'"), 1)
}

// Without a handler of its own, nats.go writes errors of a connection to the standard error.
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
