package outbox

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// No statement of a batch reads the table from one end to the other, whatever the planner believes of it: here, that all rows
// are pending and in the lanes that are asked for, or that none are.
func TestEveryStatementIsALookIntoAnIndex(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r, err := New(t.Context(), p.config())
	if err != nil {
		t.Fatal(err)
	}
	scan := regexp.MustCompile(`(Seq Scan on event_outbox( |$)|Index.* using event_outbox_event_id)`)
	all := make([]int64, lanes)
	for _, rows := range []string{
		"SELECT 'a' || n, 'X', 'RESTAURANT', '5' FROM generate_series(1, 3000) n",
		"SELECT 'b' || n, 'X', 'RESTAURANT', n::text FROM generate_series(1, 3000) n",
	} {
		p.exec("ANALYZE event_outbox")
		p.exec("INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id) " + rows)
		for range 2 {
			for name, statement := range map[string]struct {
				sql  string
				args []any
			}{
				"claim": {claimSQL, []any{0, lanesAtOnce}},
				"read":  {readSQL, []any{[]int16{1, 2, 3}, 64, batchBytes, maxBytes}},
				"last":  {lastSQL, []any{[]int16{1, 2, 3}, 1.0}},
				"idle":  {waitingSQL, nil},
				"due":   {dueSQL, []any{1.0, 32}},
				"sweep": {sweepSQL, []any{all, 32}},
				"mark":  {markSQL, []any{[]int16{1}, []int64{1}, "published", []int64{1}}},
			} {
				plan := explain(t, r, statement.sql, statement.args)
				if scan.MatchString(plan) {
					t.Errorf("%s reads the whole table:\n%s", name, plan)
				}
			}
			p.exec("ANALYZE event_outbox")
		}
	}
}

// explain returns the plan of a statement in a transaction of the relay.
func explain(t *testing.T, r *Relay, sql string, args []any) string {
	t.Helper()
	tx, err := r.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.abandon(t.Context(), tx)
	answer, err := tx.Query(t.Context(), "EXPLAIN "+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(answer, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
