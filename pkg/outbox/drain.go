package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/expediter-io/expediter/internal/validate"
)

// The points that a relay passes, in order. Its process may die between any two of them.
const (
	pointClaimed      = "claimed"      // lanes are locked
	pointAcknowledged = "acknowledged" // some rows are in the stream, none is deleted
	pointMarked       = "marked"       // rows are deleted, the transaction is not committed
	pointCommitted    = "committed"    // the transaction is committed
)

// drain publishes batch after batch. When no row is left it rests until it is woken.
func (r *Relay) drain(ctx context.Context, s *session, from int) {
	var failures int
	for barren := 0; ctx.Err() == nil; {
		did, err := r.batch(ctx, s, from)
		if err != nil && !s.alive() {
			return
		}
		from = did.next // also after an error, which other lanes may not have
		if err == nil && failures > 0 {
			failures = 0
			r.hook("Ready", func() { r.cfg.Hooks.Ready(true, nil) })
		}
		if barren += did.lanes; err != nil || did.rows > 0 {
			barren = 0
		} else if did.lanes < lanesAtOnce || barren >= lanes { // otherwise the rows of these lanes have to wait, those of other lanes may not
			barren = 0
			err = r.rest(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.hook("Ready", func() { r.cfg.Hooks.Ready(false, err) })
			r.failed(ctx, "publish", err, &failures)
		}
	}
}

// rest waits until there may be rows to publish.
func (r *Relay) rest(ctx context.Context) error {
	delay, err := r.idle(ctx)
	if err != nil {
		return err
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-r.wake:
	case <-timer.C:
	}
	return nil
}

// progress is the result of one batch.
type progress struct {
	lanes int // how many it held
	next  int // the lane at which the next batch begins
	rows  int // the number of rows that it published or set aside
}

// batch publishes rows in one transaction. When ctx ends it finishes the rows under way.
func (r *Relay) batch(ctx context.Context, s *session, from int) (did progress, err error) {
	did.next = (from + lanesAtOnce) % lanes
	until := time.Now().Add(r.cfg.lease() - r.cfg.PublishTimeout)
	asking, answered := context.WithTimeout(ctx, r.cfg.answer)
	defer answered()
	tx, err := r.begin(asking)
	if err != nil {
		return did, err
	}
	defer func() {
		if err != nil {
			r.abandon(ctx, tx)
		}
	}()
	claimed, rows, err := r.claim(asking, tx, from)
	if err != nil {
		return did, err
	}
	if len(claimed) == 0 {
		return progress{next: from}, wrap("end a batch", tx.Rollback(asking))
	}
	did.lanes, did.next = len(claimed), int(claimed[len(claimed)-1]+1)%lanes
	careful := r.inDoubt(claimed)
	if careful {
		if rows, err = r.unlocked(asking, tx, claimed, rows); err != nil {
			return did, err
		}
	}
	if len(claimed) == lanesAtOnce {
		r.notify() // there may be work for another batch
	}
	r.cfg.passed(pointClaimed)
	results := r.publish(ctx, s, rows, until)
	r.cfg.passed(pointAcknowledged)
	marking, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.answer)
	defer cancel()
	if err := r.mark(marking, tx, results, careful); err != nil {
		r.doubt(claimed, true)
		return did, err
	}
	did.rows = r.report(ctx, results)
	if results.unclear && !s.alive() {
		return did, errSession
	}
	return did, wrap("publish", results.elsewhere)
}

const refuseSQL = `UPDATE event_outbox o SET attempts = attempts + 1, reason = a.reason,
		retry_at = statement_timestamp() + make_interval(secs => a.delay)
	FROM unnest($1::smallint[], $2::bigint[], $3::text[], $4::float8[]) AS a(lane, id, reason, delay)
	WHERE o.lane = a.lane AND o.id = a.id`

const setAsideSQL = `UPDATE event_outbox o SET state = 'set_aside', attempts = attempts + 1, reason = a.reason, retry_at = NULL
	FROM unnest($1::smallint[], $2::bigint[], $3::text[]) AS a(lane, id, reason) WHERE o.lane = a.lane AND o.id = a.id`

const deleteSQL = `DELETE FROM event_outbox o USING unnest($1::smallint[], $2::bigint[]) AS a(lane, id)
	WHERE o.lane = a.lane AND o.id = a.id`

// mark writes the outcome of a batch and commits the transaction.
func (r *Relay) mark(ctx context.Context, tx pgx.Tx, results *outcome, careful bool) error {
	left := results
	if careful {
		deleteEach(ctx, tx, results)
		left = &outcome{refused: results.refused, setAside: results.setAside}
	}
	if err := write(ctx, tx, left); err != nil {
		return wrap("mark rows", err)
	}
	r.cfg.passed(pointMarked)
	if err := tx.Commit(ctx); err != nil {
		return wrap("mark rows", err)
	}
	r.cfg.passed(pointCommitted)
	return nil
}

// deleteEach deletes the published rows one by one. It sets a row aside that the database does not let go, such as one that a foreign key
// refers to: otherwise the row would be published again with each batch.
func deleteEach(ctx context.Context, tx pgx.Tx, results *outcome) {
	results.published = slices.DeleteFunc(results.published, func(p published) bool {
		err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			return write(ctx, savepoint, &outcome{published: []published{p}})
		})
		if err != nil {
			results.setAside = append(results.setAside, failure{row: p.row, err: fmt.Errorf("published, but its row cannot be deleted: %w", err)})
		}
		return err != nil
	})
}

// write deletes the published rows, and writes the outcome of the others.
func write(ctx context.Context, tx pgx.Tx, results *outcome) error {
	batch := &pgx.Batch{}
	if n := len(results.published); n > 0 {
		lanes, ids := make([]int16, n), make([]int64, n)
		for i, p := range results.published {
			lanes[i], ids[i] = p.row.Lane, p.row.ID
		}
		queue(batch, n, deleteSQL, lanes, ids)
	}
	if lanes, ids, reasons, delays := columns(results.refused); len(ids) > 0 {
		queue(batch, len(ids), refuseSQL, lanes, ids, reasons, delays)
	}
	if lanes, ids, reasons, _ := columns(results.setAside); len(ids) > 0 {
		queue(batch, len(ids), setAsideSQL, lanes, ids, reasons)
	}
	return tx.SendBatch(ctx, batch).Close()
}

// queue adds a statement that fails unless it writes all of the rows: a trigger or a rule of the table could keep them without an error.
func queue(batch *pgx.Batch, rows int, sql string, args ...any) {
	batch.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		return validate.If(tag.RowsAffected() != int64(rows),
			"%.6s wrote %d of %d rows: they are gone, or a trigger or rule of event_outbox keeps them", sql, tag.RowsAffected(), rows)
	})
}

// columns returns the columns to write for failures.
func columns(failures []failure) (lanes []int16, ids []int64, reasons []string, delays []float64) {
	for _, f := range failures {
		lanes, ids = append(lanes, f.row.Lane), append(ids, f.row.ID)
		reasons, delays = append(reasons, brief(f.err)), append(delays, f.delay.Seconds())
	}
	return lanes, ids, reasons, delays
}

// report counts the outcome. It returns the number of rows that were published or set aside.
func (r *Relay) report(ctx context.Context, results *outcome) int {
	for _, p := range results.published {
		if p.ack.Duplicate {
			r.counters.duplicates.Add(1)
		}
	}
	r.counters.published.Add(int64(len(results.published)))
	for _, f := range results.refused {
		r.counters.refused.Add(1)
		r.counters.failed(f.err)
		r.cfg.Logger.WarnContext(ctx, "outbox.refused", "event_id", f.row.EventID, "attempt", f.row.Attempts+1, "delay", f.delay, "error", f.err)
	}
	for _, f := range results.setAside {
		r.counters.setAside.Add(1)
		r.counters.failed(f.err)
		r.cfg.Logger.ErrorContext(ctx, "outbox.set_aside", "event_id", f.row.EventID, "reason", f.err)
	}
	return len(results.published) + len(results.setAside)
}
