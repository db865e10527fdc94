package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
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
	var wait time.Duration
	for barren := 0; ctx.Err() == nil; {
		did, err := r.batch(ctx, s, from)
		switch {
		case err != nil && !s.alive():
			return
		case err != nil:
			r.failed(ctx, "publish a batch", err, &wait)
			continue
		}
		wait = 0
		from = did.next
		if did.rows > 0 {
			barren = 0
			continue
		}
		if barren += did.lanes; did.lanes == lanesAtOnce && barren < lanes {
			continue // the rows of these lanes have to wait, those of other lanes may not
		}
		barren = 0
		if err := r.rest(ctx); err != nil {
			r.failed(ctx, "look for rows", err, &wait)
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
	did.next = from
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
		return did, wrap("end a batch", tx.Rollback(asking))
	}
	if len(claimed) == lanesAtOnce {
		r.notify() // there may be work for another batch
	}
	r.cfg.passed(pointClaimed)
	did.lanes, did.next = len(claimed), int(claimed[len(claimed)-1]+1)%lanes
	results := r.publish(ctx, s, rows, until)
	r.cfg.passed(pointAcknowledged)
	marking, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.answer)
	defer cancel()
	if err := r.mark(marking, tx, results); err != nil {
		return did, err
	}
	did.rows = r.report(ctx, results)
	if results.unclear && !s.alive() {
		return did, errSession
	}
	return did, nil
}

const refuseSQL = `UPDATE event_outbox o SET attempts = attempts + 1, reason = a.reason,
		retry_at = statement_timestamp() + make_interval(secs => a.delay)
	FROM unnest($1::smallint[], $2::bigint[], $3::text[], $4::float8[]) AS a(lane, id, reason, delay)
	WHERE o.lane = a.lane AND o.id = a.id`

const setAsideSQL = `UPDATE event_outbox o SET state = 'set_aside', attempts = attempts + 1, reason = a.reason, retry_at = NULL
	FROM unnest($1::smallint[], $2::bigint[], $3::text[]) AS a(lane, id, reason) WHERE o.lane = a.lane AND o.id = a.id`

const deleteSQL = `DELETE FROM event_outbox o USING unnest($1::smallint[], $2::bigint[]) AS a(lane, id)
	WHERE o.lane = a.lane AND o.id = a.id`

// mark deletes the published rows, writes the outcome of the others, and commits the transaction.
func (r *Relay) mark(ctx context.Context, tx pgx.Tx, results *outcome) error {
	batch := &pgx.Batch{}
	if n := len(results.published); n > 0 {
		lanes, ids := make([]int16, n), make([]int64, n)
		for i, p := range results.published {
			lanes[i], ids[i] = p.row.Lane, p.row.ID
		}
		batch.Queue(deleteSQL, lanes, ids)
	}
	if lanes, ids, reasons, delays := columns(results.refused); len(ids) > 0 {
		batch.Queue(refuseSQL, lanes, ids, reasons, delays)
	}
	if lanes, ids, reasons, _ := columns(results.setAside); len(ids) > 0 {
		batch.Queue(setAsideSQL, lanes, ids, reasons)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return wrap("mark rows", err)
	}
	r.cfg.passed(pointMarked)
	if err := tx.Commit(ctx); err != nil {
		return wrap("mark rows", err)
	}
	r.cfg.passed(pointCommitted)
	return nil
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
