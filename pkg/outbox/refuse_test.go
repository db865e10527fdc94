package outbox_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	diffs "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"
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
	const huge = `('"' || repeat('x', 20000000) || '"')::json`
	rows := map[string]struct{ column, value, reason string }{
		"large":        {"payload", `('"' || repeat('x', 1048576) || '"')::json`, "too many"},
		"nearly":       {"payload", `('"' || repeat('x', 1048476) || '"')::json`, "the server takes at most 1048576"}, // too large with its headers
		"huge":         {"payload", huge, "too many"},
		"header":       {"headers", `'{"a":"b\r\nNats-Rollup: all"}'`, `header "a"`},
		"server's":     {"headers", `'{"Nats-Rollup":"all"}'`, "Nats-"},
		"event's":      {"headers", `'{"CE-ID":"other"}'`, `header "CE-ID"`},
		"no headers":   {"headers", `'[[1]]'`, "want an object of strings"},
		"half a key":   {"payload", `'{"\ud83d":1,"\ud83e":2}'`, "occurs twice"},
		"twice":        {"payload", `'{"a":1,"a":2}'`, "/payload/a"},
		"deep":         {"payload", `(repeat('[', 100) || repeat(']', 100))::json`, "/payload"},
		"extra list":   {"extra", `'[[[1]]]'`, "must be an object"},
		"extra within": {"extra", `'{"a":{"b":1,"b":2}}'`, "/a/b occurs twice"},
		"extra field":  {"extra", `'{"event\u005fid":"other"}'`, "/event_id is a field"},
		"extra deep":   {"extra", `('{"a":' || repeat('[', 64) || repeat(']', 64) || '}')::json`, "nested"},
		"extra large":  {"extra", `('{"a":"' || repeat('x', 1048476) || '"}')::json`, "the server takes at most 1048576"},
		"subject":      {"extra", `'{"refused":true}'`, "the program's reason"},
		"user":         {"user_id", `repeat('x', 1000)`, "/user_id"},
		"huge user":    {"user_id", `repeat('x', 20000000)`, "too many"},
		"infinity":     {"not_before", `'infinity'`, "not_before is infinity"},
		"-infinity":    {"occurred_at", `'-infinity'`, "occurred_at is -infinity"},
		"late":         {"not_before", `'294276-12-31'`, "/not_before"},
	}
	for id, row := range rows {
		p.exec(fmt.Sprintf(`INSERT INTO event_outbox (event_id, event_type, aggregate_type, ordering_key, %s)
			VALUES ($1, 'X', 'RESTAURANT', 'RESTAURANT/5', %s)`, row.column, row.value), id)
	}
	other := event("taken", "5")
	largest := event("largest", "5")
	largest.Event.Payload = []byte(`"` + strings.Repeat("x", contracts.MaxBody-3<<10) + `"`) // Insert takes it
	p.insert(event("good", "5"), other, largest)
	other.Event.Payload = []byte(`{"guests":5}`)
	publisher := check.Must(contracts.NewPublisher(p.js, contracts.PublisherConfig{}))(t)
	check.OK(t, check.Err(publisher.Publish(t.Context(), other.Event)))
	r, _ := p.relay(func(c *outbox.Config) {
		c.Subject = func(e contracts.Event) (string, error) {
			if e.Extra["refused"] != nil {
				return "", errors.New("the program's reason")
			}
			return e.Subject()
		}
		// a connection that formats as the role says, and not as Go reads it
		c.Pool = again(t, p.pool, func(c *pgx.ConnConfig) {
			c.RuntimeParams["datestyle"], c.RuntimeParams["bytea_output"], c.DefaultQueryExecMode = "German", "escape", pgx.QueryExecModeExec
		})
	})
	await(t, "all are out of the way", func() bool { s := r.Stats(); return s.Published == 2 && s.SetAside == int64(len(rows)+1) })
	check.Equal(t, p.stored(), []string{"taken", "good", "largest"})
	rows["taken"] = struct{ column, value, reason string }{reason: "another event"}
	for id, row := range rows {
		reason := query[string](p, "SELECT coalesce(reason, state) FROM event_outbox WHERE event_id = $1", id)
		check.That(t, strings.Contains(reason, row.reason), "%q is set aside for %q, want %q", id, reason, row.reason)
	}
	p.exec("UPDATE event_outbox SET user_id = '' WHERE event_id = 'user'")
	n, err := outbox.Requeue(t.Context(), p.pool, "user", "good")
	check.That(t, n == 1 && err == nil, "requeued %d, %v", n, err)
	await(t, "the repaired one is published", func() bool { return r.Stats().Published == 3 })
	n, err = outbox.Requeue(t.Context(), p.pool)
	check.That(t, n == int64(len(rows)-1) && err == nil, "requeued %d, %v", n, err)
	await(t, "the others are set aside again", func() bool { return r.Stats().SetAside == int64(2*len(rows)-1) })
}

// A row that the server refuses holds up the rows with its key only, and not for ever.
func TestRefusedEventHoldsUpItsKeyOnlyAndNotForEver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.stream(func(c *jetstream.StreamConfig) { c.Subjects = []string{"events.RESTAURANT.>"} }) // no stream takes other subjects
	bad := event("bad", "5")
	bad.Event.AggregateType, bad.OrderingKey = "NOBODY", "k"
	behind := event("behind", "")
	behind.OrderingKey = "k"
	p.insert(bad)
	p.insert(behind)
	p.insert(events("other", 64, 2)...) // also in its lane
	r, _ := p.relay(func(c *outbox.Config) { c.Poll = 100 * time.Millisecond })
	await(t, "the others are published", func() bool { return r.Stats().Published == 128 })
	await(t, "it was refused", func() bool { return query[int](p, "SELECT attempts FROM event_outbox WHERE event_id = 'bad'") > 0 })
	check.Equal(t, p.count("pending"), 2, "rows wait")
	p.exec("UPDATE event_outbox SET attempts = 9, retry_at = now() WHERE event_id = 'bad'") // as if some minutes had passed
	await(t, "it is set aside, those behind it are published", func() bool { s := r.Stats(); return s.Published == 129 && s.SetAside == 1 })
	reason := query[string](p, "SELECT reason FROM event_outbox WHERE event_id = 'bad'")
	check.That(t, reason != "", "no reason is kept")
}

// A row that another transaction has locked holds up its key only, and one that cannot be deleted is set aside: neither keeps the rows of
// its batch from being marked, to be published again and again.
func TestRowThatCannotBeMarkedHoldsUpItsKeyOnly(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	all := events("e", 3, 3)
	p.insert(all...)
	p.exec("UPDATE event_outbox SET lane = 7") // all in one lane
	p.exec("CREATE TABLE mine (event_id text REFERENCES event_outbox (event_id))")
	p.exec("INSERT INTO mine VALUES ('e-1-1')")
	p.exec("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
	p.exec("CREATE TRIGGER keep BEFORE DELETE ON event_outbox FOR EACH ROW WHEN (OLD.event_id = 'e-2-1') EXECUTE FUNCTION keep()")
	held := check.Must(p.pool.Begin(t.Context()))(t)
	defer held.Rollback(t.Context())
	check.OK(t, check.Err(held.Exec(t.Context(), "SELECT FROM event_outbox WHERE event_id = 'e-0-1' FOR UPDATE")))
	var failed, sent atomic.Int64
	r, _ := p.relay(func(c *outbox.Config) {
		c.Concurrency, c.Poll = 1, 100*time.Millisecond
		c.Hooks.Ready = func(bool, error) { failed.Add(1) }
		c.Hooks.Sending = func(nats.Header) func(error) { sent.Add(1); return nil }
	})
	await(t, "all but the locked one and that behind it are out of the way", func() bool { return p.count("pending") == 2 })
	p.insert(event("other", "9")) // while it is locked
	await(t, "another lane goes on", func() bool { return slices.Contains(p.stored(), "other") })
	check.Equal(t, p.count("set_aside"), 2, "set aside")
	for id, why := range map[string]string{"e-1-1": "mine_event_id_fkey", "e-2-1": "trigger"} {
		reason := query[string](p, "SELECT reason FROM event_outbox WHERE event_id = $1", id)
		check.That(t, strings.Contains(reason, "cannot be deleted") && strings.Contains(reason, why), "%s is set aside for %q", id, reason)
	}
	check.OK(t, held.Rollback(t.Context()))
	await(t, "all are published", func() bool { return p.left() == 2 })
	checkOrder(t, slices.DeleteFunc(p.stored(), func(id string) bool { return id == "other" }), all)
	s := r.Stats()
	check.That(t, s.Published == 8 && s.SetAside == 2 && s.Duplicates <= int64(len(all)), "the rows were published again and again: %+v", s)

	// The same while nobody may change the table, as when an index is made.
	begin := func(sql string) pgx.Tx {
		tx := check.Must(p.pool.Begin(t.Context()))(t)
		check.OK(t, check.Err(tx.Exec(t.Context(), sql)))
		return tx
	}
	lanes := begin("SELECT FROM event_outbox_lane FOR UPDATE")
	p.insert(event("late", "5"))
	table := begin("LOCK TABLE event_outbox IN SHARE MODE")
	failed.Store(0)
	sent.Store(0)
	check.OK(t, lanes.Rollback(t.Context()))
	await(t, "the relay has tried again and again", func() bool { return failed.Load() > 2 })
	check.Equal(t, sent.Load(), 1, "times published")
	check.OK(t, table.Rollback(t.Context()))
	await(t, "it is published", func() bool { return p.left() == 2 })
}

// While a statement fails, the relay is not ready, says what is wrong with which table or stream, and goes on once that is fixed.
func TestWhatKeepsARelayFromPublishingIsToldByName(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ready := make(chan error, 1000)
	r, _ := p.relay(func(c *outbox.Config) {
		c.Poll = 50 * time.Millisecond
		c.Hooks.Ready = func(_ bool, reason error) {
			ready <- reason
			panic("a hook that panics")
		}
	})
	check.OK(t, <-ready)
	for i, test := range []struct {
		spoil, mend string
		full        bool
		says        []string
	}{
		{spoil: "ALTER TABLE event_outbox RENAME payload TO body", mend: "ALTER TABLE event_outbox RENAME body TO payload", says: []string{"event_outbox", "payload"}},
		{spoil: "ALTER TABLE event_outbox ALTER not_before TYPE int USING 5", mend: "ALTER TABLE event_outbox ALTER not_before TYPE timestamptz USING NULL", says: []string{"event_outbox", "not_before"}},
		{spoil: "ALTER TABLE event_outbox_lane RENAME TO away", mend: "ALTER TABLE away RENAME TO event_outbox_lane", says: []string{"event_outbox_lane"}},
		{full: true, says: []string{"EVENTS", "events.RESTAURANT.RESERVATION_REQUESTED", "maximum bytes"}},
	} {
		p.stream(func(c *jetstream.StreamConfig) {
			if test.full {
				c.Discard, c.MaxBytes = jetstream.DiscardNew, 1
			}
		})
		check.OK(t, pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
			if err := outbox.Insert(t.Context(), tx, event(fmt.Sprint("e-", i), "")); err != nil {
				return err
			}
			return check.Err(tx.Exec(t.Context(), cmp.Or(test.spoil, "SELECT")))
		}))
		await(t, fmt.Sprintf("it names %q", test.says), func() bool {
			text := fmt.Sprint(<-ready)
			return !slices.ContainsFunc(test.says, func(name string) bool { return !strings.Contains(text, name) })
		})
		p.exec(cmp.Or(test.mend, "SELECT"))
		p.stream(nil)
		await(t, "it is ready again", func() bool { return <-ready == nil })
		await(t, "it goes on", func() bool { return r.Stats().Published == int64(i+1) })
	}
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
			check.Equal(t, (r.Stats().Duplicates == 1), how == natstest.ReplyLost, "were in the stream")
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
	defer held.Rollback(t.Context())
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
	diff := diffs.Diff([]string{"alone"}, p.stored())
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
	r := &tracer{}
	add := func(_ context.Context, _ tracelog.LogLevel, _ string, data map[string]any) {
		if tag, ok := data["commandTag"].(string); ok {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.all = append(r.all, statement{sql: data["sql"].(string), args: data["args"].([]any), rows: pgconn.NewCommandTag(tag).RowsAffected()}) //nolint:forcetypeassert // as above
		}
	}
	return again(t, pool, func(c *pgx.ConnConfig) {
		c.Tracer = &tracelog.TraceLog{Logger: tracelog.LoggerFunc(add), LogLevel: tracelog.LogLevelInfo}
	}), r
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
	refused.Event.AggregateType = "NOBODY"
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
