package outbox_test

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
)

// A row that can never be published is set aside with the reason. The other rows go on, also those with its key.
func TestRowsThatCanNeverBePublishedAreSetAside(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	insert := `INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, headers, recipients, restaurant_id, user_id)
		VALUES ($1, $2, 'RESTAURANT', '5', $3, $4, $5, $6, $7)`
	long := `"` + strings.Repeat("x", contracts.MaxBody) + `"`
	nearly := `"` + strings.Repeat("x", contracts.MaxBody-100) + `"` // too large with its envelope
	for id, row := range map[string][]any{
		"large":      {"X", long, nil, nil, nil, ""},
		"nearly":     {"X", nearly, nil, nil, nil, ""},
		"no type":    {"", "1", nil, nil, nil, ""},
		"header":     {"X", "1", `{"a":"b\r\nNats-Rollup: all"}`, nil, nil, ""},
		"server's":   {"X", "1", `{"Nats-Rollup":"all"}`, nil, nil, ""},
		"no headers": {"X", "1", `[1]`, nil, nil, ""},
		"recipients": {"X", "1", nil, `{"a":1}`, nil, ""},
		"restaurant": {"X", "1", nil, nil, `{}`, ""},
		"user":       {"X", "1", nil, nil, nil, strings.Repeat("x", 1000)},
	} {
		p.exec(insert, append([]any{id}, row...)...)
	}
	other := event("taken", "5")
	p.insert(event("good", "5"), other)
	other.Payload = []byte(`{"guests":5}`)
	publisher := check.Must(contracts.NewPublisher(p.js, contracts.PublisherConfig{}))(t)
	check.OK(t, check.Err(publisher.Publish(t.Context(), other.Event)))
	r, _ := p.relay(nil)
	await(t, "all are out of the way", func() bool { s := r.Stats(); return s.Published == 1 && s.SetAside == 10 })
	check.Equal(t, []string{"taken", "good"}, p.stored())
	rows := check.Must(p.pool.Query(t.Context(), "SELECT event_id, coalesce(reason, '') FROM event_outbox WHERE state = 'set_aside'"))(t)
	var id, reason string
	wants := map[string]string{
		"large": "too many", "nearly": "maximum", "no type": "/event_type", "header": "line break", "server's": "Nats-",
		"no headers": "want an object of strings", "recipients": "recipients", "restaurant": "/restaurant_id", "user": "/user_id", "taken": "another event",
	}
	check.OK(t, check.Err(pgx.ForEachRow(rows, []any{&id, &reason}, func() error {
		want, ok := wants[id]
		check.That(t, ok && strings.Contains(reason, want), "%q is set aside for %q, want %q", id, reason, want)
		return nil
	})))
	p.exec("UPDATE event_outbox SET event_type = 'X' WHERE event_id = 'no type'")
	n, err := outbox.Requeue(t.Context(), p.pool, "no type", "good")
	check.That(t, n == 1 && err == nil, "requeued %d, %v", n, err)
	await(t, "the repaired one is published", func() bool { return r.Stats().Published == 2 })
	n, err = outbox.Requeue(t.Context(), p.pool)
	check.That(t, n == 9 && err == nil, "requeued %d, %v", n, err)
	await(t, "the others are set aside again", func() bool { return r.Stats().SetAside == 19 })
}

// A row that the server refuses holds up the rows with its key only, and not for ever.
func TestRefusedEventHoldsUpItsKeyOnlyAndNotForEver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.stream(func(c *jetstream.StreamConfig) { c.Subjects = []string{"events.RESTAURANT.>"} }) // no stream takes other subjects
	bad := event("bad", "5")
	bad.AggregateType, bad.OrderingKey = "NOBODY", "k"
	behind := event("behind", "")
	behind.OrderingKey = "k"
	p.insert(bad)
	p.insert(behind)
	p.insert(events("other", 64, 2)...) // also in its lane
	r, _ := p.relay(func(c *outbox.Config) { c.Poll = 100 * time.Millisecond })
	await(t, "the others are published", func() bool { return r.Stats().Published == 128 })
	await(t, "it was refused", func() bool { return query[int](p, "SELECT attempts FROM event_outbox WHERE event_id = 'bad'") > 0 })
	check.Same(t, "rows wait", p.count("pending"), 2)
	p.exec("UPDATE event_outbox SET attempts = 9, retry_at = now() WHERE event_id = 'bad'") // as if some minutes had passed
	await(t, "it is set aside, those behind it are published", func() bool { s := r.Stats(); return s.Published == 129 && s.SetAside == 1 })
	reason := query[string](p, "SELECT reason FROM event_outbox WHERE event_id = 'bad'")
	check.That(t, reason != "", "no reason is kept")
}

// A lost message and a lost acknowledgement hold up the later rows with the same key: no row overtakes.
func TestNothingOvertakesAMessageThatWasLost(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]natstest.Fault{"message": natstest.WriteLost, "acknowledgement": natstest.ReplyLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			proxy := natstest.NewProxy(t, p.srv)
			which := func(f natstest.Frame) bool { return bytes.Contains(f.Payload(), []byte(`"event_id":"e-1-1"`)) }
			proxy.Hit(which, how, 1)
			all := events("e", 3, 5)
			p.insert(all...)
			r, _ := p.relay(func(c *outbox.Config) {
				c.NATSOptions = []nats.Option{proxy.Through()}
				c.PublishTimeout = 4 * time.Second // a slow machine answers all but the lost one in time
			})
			await(t, "all are published", func() bool { return r.Stats().Published == int64(len(all)) })
			checkOrder(t, p.stored(), all)
			check.Same(t, "were in the stream", (r.Stats().Duplicates == 1), how == natstest.ReplyLost)
		})
	}
}

// A refused row that waits is not read, nor are later rows with its key. Other rows of its lane are read.
func TestRowsBehindOneThatWaitsAreNotRead(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	keyed, alone := func(id string) outbox.Event { return event(id, "5") }, func(id string) outbox.Event { return event(id, "") }
	for _, e := range []outbox.Event{keyed("waits"), keyed("behind"), alone("waits-alone"), alone("alone")} {
		p.insert(e)
	}
	p.exec("UPDATE event_outbox SET lane = 7") // all in one lane
	p.exec("UPDATE event_outbox SET retry_at = now() + interval '1 hour' WHERE event_id LIKE 'waits%'")
	held := check.Must(p.pool.Begin(t.Context()))(t)
	defer held.Rollback(t.Context()) //nolint:errcheck // the test ends
	check.OK(t, check.Err(held.Exec(t.Context(), "SELECT FROM event_outbox_lane WHERE lane = 7 FOR UPDATE")))
	pool, statements := traced(t, p.pool)
	r, _ := p.relay(func(c *outbox.Config) { c.Pool = pool })
	waiting := func(sql string) bool { return strings.Contains(sql, "EXISTS (SELECT FROM event_outbox_lane") }
	// Without rows in a lane that another holds, it would look once more for each wake and then rest for an hour.
	await(t, "it looks again and again", func() bool { return len(statements.where(waiting)) > 8 })
	check.OK(t, held.Rollback(t.Context()))
	await(t, "one is published", func() bool { return r.Stats().Published == 1 })
	reads := statements.where(func(sql string) bool {
		return strings.Contains(sql, "FROM unnest($1::smallint[]) AS wanted(wanted_lane)") && strings.Contains(sql, "payload")
	})
	for _, read := range reads {
		check.That(t, read.rows <= 1, "%d rows were read at once, want one", read.rows)
	}
	diff := cmp.Diff([]string{"alone"}, p.stored())
	check.That(t, diff == "" && len(reads) != 0, "after %d reads %s", len(reads), diff)
}

// statement is a statement that a relay has run.
type statement struct {
	sql  string
	args []any
	rows int64
}

// tracer records the statements of a pool.
type tracer struct {
	mu  sync.Mutex
	all []statement
}

// traced returns another pool of the same database, and the recorder of its statements.
func traced(t *testing.T, pool *pgxpool.Pool) (*pgxpool.Pool, *tracer) {
	t.Helper()
	config, record := pool.Config(), &tracer{}
	config.ConnConfig.Tracer = record
	other := check.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(other.Close)
	return other, record
}

func (r *tracer) add(s statement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
}

// where returns the recorded statements whose SQL matches.
func (r *tracer) where(is func(sql string) bool) []statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []statement
	for _, s := range r.all {
		if is(s.sql) {
			found = append(found, s)
		}
	}
	return found
}

type startedQuery struct{}

func (*tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, startedQuery{}, statement{sql: data.SQL, args: data.Args})
}

func (r *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	s, _ := ctx.Value(startedQuery{}).(statement)
	s.rows = data.CommandTag.RowsAffected()
	r.add(s)
}

func (*tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r *tracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	r.add(statement{sql: data.SQL, args: data.Args, rows: data.CommandTag.RowsAffected()})
}

func (*tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// No statement of a relay scans the table, whatever statistics the planner has: here, that all rows are pending and in the lanes
// of the statement, or that none are.
func TestEveryStatementUsesAnIndex(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.stream(func(c *jetstream.StreamConfig) {
		c.Subjects, c.Duplicates = []string{"events.RESTAURANT.>", "events.OTHER.>"}, 100*time.Millisecond
	})
	statements := p.everyStatement(t)
	scan := regexp.MustCompile(`(Seq Scan on event_outbox( |$)|Index.* using event_outbox_event_id)`)
	p.exec("DELETE FROM event_outbox")
	for _, rows := range []string{
		"SELECT 'a' || n, 'X', 'RESTAURANT', '5' FROM generate_series(1, 3000) n",
		"SELECT 'b' || n, 'X', 'RESTAURANT', n::text FROM generate_series(1, 3000) n",
	} {
		p.exec("ANALYZE event_outbox")
		p.exec("INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id) " + rows)
		for range 2 {
			for sql, args := range statements {
				plan := p.explain(t, sql, args)
				check.That(t, !scan.MatchString(plan), "%s\nreads the whole table:\n%s", sql, plan)
			}
			p.exec("ANALYZE event_outbox")
		}
	}
}

// everyStatement has a relay publish, refuse and set aside rows. It returns the statements about the table that the relay has run, with
// arguments.
func (p *place) everyStatement(t *testing.T) map[string][]any {
	t.Helper()
	pool, record := traced(t, p.pool)
	refused, invalid := event("refused", ""), event("invalid", "6")
	refused.AggregateType = "NOBODY"
	p.insert(append(events("e", 3, 4), refused, invalid)...)
	p.exec("UPDATE event_outbox SET event_type = '' WHERE event_id = 'invalid'")
	r, stop := p.relay(func(c *outbox.Config) { c.Pool = pool })
	await(t, "one is refused, one is set aside, and the others are published", func() bool {
		s := r.Stats()
		return s.Refused > 0 && s.SetAside == 1 && s.Published == 12
	})
	stop()
	statements := map[string][]any{}
	for _, s := range record.where(regexp.MustCompile(`^\s*(SELECT|UPDATE|DELETE)[^;]*\bevent_outbox\b`).MatchString) {
		if !strings.Contains(s.sql, "to_regclass") { // asks whether there is a table
			statements[s.sql] = s.args
		}
	}
	check.That(t, len(statements) >= 6, "%d statements are too few to be all of a relay", len(statements))
	return statements
}

// explain returns the plan of a statement in a transaction like those of the relay.
func (p *place) explain(t *testing.T, sql string, args []any) (plan string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL enable_seqscan = off; SET LOCAL jit = off"); err != nil {
			return err
		}
		answer, err := tx.Query(t.Context(), "EXPLAIN "+sql, args...)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(answer, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
		return err
	})
	check.Require(t, err == nil, "%s: %v", sql, err)
	return plan
}
