package outbox_test

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
)

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
