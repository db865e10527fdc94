package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
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

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
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
	other, err := pgxpool.NewWithConfig(t.Context(), config)
	check.OK(t, err)
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

// everyStatement has a relay publish, refuse, set aside, lose, keep and delete rows. It returns the statements about the table
// that the relay has run, with arguments.
func (p *place) everyStatement(t *testing.T) map[string][]any {
	t.Helper()
	pool, record := traced(t, p.pool)
	refused, invalid := event("refused", ""), event("invalid", "6")
	refused.AggregateType = "NOBODY"
	p.insert(append(events("e", 3, 4), refused, invalid)...)
	p.exec("UPDATE event_outbox SET event_type = '' WHERE event_id = 'invalid'")
	r, stop := p.relay(func(c *outbox.Config) { c.Pool, c.Keep = pool, time.Millisecond })
	await(t, "one is refused, one is set aside, and the others are published", func() bool {
		s := r.Stats()
		return s.Refused > 0 && s.SetAside == 1 && s.Published == 12
	})
	stop()
	p.lose(query[int64](p, "SELECT max(stream_seq) FROM event_outbox"))
	r, stop = p.relay(func(c *outbox.Config) { c.Pool, c.Keep, c.SyncInterval = pool, time.Millisecond, time.Second })
	await(t, "all are kept, and then deleted", func() bool { return r.Stats().Lost == 1 && r.Stats().Deleted == 12 })
	stop()
	p.insert(events("more", 3, 4)...)
	r, stop = p.relay(func(c *outbox.Config) { c.Pool, c.SyncInterval = pool, time.Second })
	await(t, "all are deleted", func() bool { return r.Stats().Deleted == 12 })
	stop()
	statements := map[string][]any{}
	for _, s := range record.where(regexp.MustCompile(`^\s*(SELECT|UPDATE|DELETE)[^;]*\bevent_outbox\b`).MatchString) {
		if !strings.Contains(s.sql, "obj_description") { // asks for the version of the table
			statements[s.sql] = s.args
		}
	}
	check.That(t, len(statements) >= 14, "%d statements are too few to be all of a relay", len(statements))
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

// The benchmarks drain a backlog. They report rows/s, and the CPU time of one row in this process, which includes the NATS
// server, and in Postgres. Postgres does not sync here, and the server syncs every two minutes. Run them with -benchtime 20000x.

func BenchmarkRelay(b *testing.B) {
	for _, keys := range []int{1, 100, 10_000} {
		for _, relays := range []int{1, 2} {
			b.Run(fmt.Sprintf("keys=%d/relays=%d", keys, relays), func(b *testing.B) {
				p := backlog(b, keys)
				drained(b, p, func(ctx context.Context) {
					all := make([]*outbox.Relay, relays)
					for i := range all {
						all[i], _ = p.relay(func(c *outbox.Config) { c.Logger = slog.New(slog.DiscardHandler) })
					}
					for published := int64(0); published < int64(b.N); sleep(ctx, time.Millisecond) {
						published = 0
						for _, r := range all {
							published += r.Stats().Published
						}
					}
				})
			})
		}
	}
}

// BenchmarkReadBack reads published rows back from the stream and deletes them.
func BenchmarkReadBack(b *testing.B) {
	p := backlog(b, 10_000)
	r, stop := p.relay(func(c *outbox.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	await(b, "all are published", func() bool { return r.Stats().Published == int64(b.N) })
	stop()
	p.exec("UPDATE event_outbox SET published_at = published_at - interval '1 hour'")
	p.exec("VACUUM ANALYZE event_outbox")
	drained(b, p, func(ctx context.Context) {
		r, _ := p.relay(func(c *outbox.Config) { c.Logger, c.SyncInterval = slog.New(slog.DiscardHandler), time.Minute })
		for r.Stats().Deleted < int64(b.N) {
			sleep(ctx, time.Millisecond)
		}
	})
}

// BenchmarkPoller measures what the relay replaces: a poller that reads the oldest hundred rows, publishes one, waits for the
// acknowledgement, and marks the row. It does not wait between two polls here, so this is its upper bound.
func BenchmarkPoller(b *testing.B) {
	p := backlog(b, 100)
	p.exec("CREATE INDEX poller ON event_outbox (id) WHERE state = 'pending'")
	p.exec("VACUUM ANALYZE event_outbox")
	drained(b, p, func(ctx context.Context) {
		for done := 0; done < b.N; {
			rows, err := p.pool.Query(ctx, "SELECT id, event_id, payload FROM event_outbox WHERE state = 'pending' ORDER BY id LIMIT 100")
			check.OK(b, err)
			type pending struct {
				ID      int64
				EventID string
				Payload []byte
			}
			batch, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pending])
			check.OK(b, err)
			for _, one := range batch {
				msg := nats.NewMsg("events.RESTAURANT.RESERVATION_REQUESTED")
				msg.Data, err = json.Marshal(contracts.Event{EventID: one.EventID, Payload: one.Payload})
				check.OK(b, err)
				check.OK(b, check.Err(p.js.PublishMsg(ctx, msg, jetstream.WithMsgID(one.EventID))))
				check.OK(b, check.Err(p.pool.Exec(ctx, "UPDATE event_outbox SET state = 'published', published_at = now() WHERE id = $1 AND state = 'pending'", one.ID)))
				done++
			}
		}
	})
}

// BenchmarkLatency measures from before the insert of one event to its arrival at a subscriber. A poller needs half its
// interval for that.
func BenchmarkLatency(b *testing.B) {
	p := newPlace(b)
	nc, _ := natstest.Connect(b, p.srv)
	sub, err := nc.SubscribeSync("events.>")
	check.OK(b, err)
	p.relay(func(c *outbox.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	for i := 0; b.Loop(); i++ {
		p.insert(event(fmt.Sprint("e-", i), fmt.Sprint(i%100)))
		check.OK(b, check.Err(sub.NextMsg(patience)))
	}
}

// backlog returns a place with b.N rows.
func backlog(b *testing.B, keys int) *place {
	b.Helper()
	p := newPlace(b)
	for from := 0; from < b.N; from += 5000 {
		p.exec(`INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload)
			SELECT 'evt-' || n, 'RESERVATION_REQUESTED', 'RESTAURANT', (n % $1)::text, json_build_object('guests', n, 'note', repeat('x', 200))
			FROM generate_series($2::int, $3::int) n`, keys, from, min(from+5000, b.N)-1)
	}
	p.exec("VACUUM ANALYZE event_outbox")
	return p
}

// drained runs f, and reports rows/s and CPU time for each row.
func drained(b *testing.B, p *place, f func(context.Context)) {
	b.Helper()
	b.ResetTimer()
	self, server, began := ownCPU(b), postgresCPU(b), time.Now()
	f(p.Context())
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "rows/s")
	b.ReportMetric(float64((ownCPU(b)-self).Microseconds())/float64(b.N), "cpu-µs/row")
	b.ReportMetric(float64((postgresCPU(b)-server).Microseconds())/float64(b.N), "postgres-cpu-µs/row")
}

func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	check.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// postgresCPU is the CPU time of all processes of the server on Linux, and 0 elsewhere.
func postgresCPU(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(outboxtest.Folder(), "postmaster.pid"))
	check.OK(b, err)
	parent, _, _ := strings.Cut(string(text), "\n")
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	check.OK(b, err)
	var ticks int
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		_, behind, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(behind)
		switch {
		case len(fields) < 15:
		case filepath.Base(filepath.Dir(file)) == parent: // includes children that have ended
			ticks += sum(b, fields[11:15])
		case fields[1] == parent:
			ticks += sum(b, fields[11:13])
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func sum(b *testing.B, fields []string) (total int) {
	b.Helper()
	for _, field := range fields {
		n, err := strconv.Atoi(field)
		check.OK(b, err)
		total += n
	}
	return total
}
