package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/testbed"
	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

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
