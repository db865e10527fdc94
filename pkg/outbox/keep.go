package outbox

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/outbox/internal/probe"
	"github.com/expediter-io/expediter/pkg/outbox/internal/readback"
)

const (
	// keepLock is the advisory lock of the single relay that reads back and deletes.
	keepLock = schemaLock + 1

	// keepBatch is the number of rows that one transaction reads back or deletes.
	keepBatch = 2048
)

// dueSQL reads up to $2 rows of each lane that were published $1 seconds ago, oldest first.
const dueSQL = `SELECT id, event_id, due.lane, stream_seq FROM event_outbox_lane l CROSS JOIN LATERAL (
		SELECT id, event_id, lane, stream_seq FROM event_outbox o WHERE o.lane = l.lane AND o.state = 'published'
			AND published_at <= now() - make_interval(secs => $1) ORDER BY published_at, stream_seq LIMIT $2) due`

// keep reads rows back once they are old enough, and deletes or keeps them. First it reads back all published rows: the server
// behind a new connection may have lost messages that another server acknowledged.
func (r *Relay) keep(ctx context.Context, s *session) {
	wait := retryDelay{}
	pause := max(minBackoff, min(r.cfg.hold()/8, r.cfg.Poll))
	for swept := r.cfg.SyncInterval < 0; ctx.Err() == nil && s.alive(); {
		if !swept {
			if err := r.sweep(ctx, s); err != nil {
				r.failed(ctx, "read back all rows", err, &wait)
				continue
			}
			swept = true
		}
		full, err := r.keepOnce(ctx, s)
		if err != nil {
			r.failed(ctx, "read back rows", err, &wait)
			continue
		}
		wait = retryDelay{}
		if !full {
			backoff.Sleep(ctx, jitter(pause))
		}
	}
}

// sweepSQL reads up to $2 published rows of each lane, after its id in $1.
const sweepSQL = `SELECT id, event_id, lane, stream_seq
	FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted(after, n) CROSS JOIN LATERAL (
		SELECT id, event_id, lane, stream_seq FROM event_outbox o
		WHERE o.lane = n - 1 AND o.state = 'published' AND o.id > after ORDER BY o.id LIMIT $2) page`

// sweep looks for all published rows in the stream. It takes all lanes side by side, so that the messages are close together.
func (r *Relay) sweep(ctx context.Context, s *session) error {
	for after := make([]int64, lanes); ; {
		rows, err := r.page(ctx, after)
		if err != nil || len(rows) == 0 {
			return err
		}
		lost, err := s.Missing(ctx, rows)
		if err != nil {
			return err
		}
		if err := r.checkLanes(ctx, s, lost); err != nil {
			return err
		}
		for _, one := range rows {
			after[one.Lane] = max(after[one.Lane], one.ID)
		}
	}
}

func (r *Relay) page(ctx context.Context, after []int64) ([]readback.Ref, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.answer)
	defer cancel()
	tx, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer r.abandon(ctx, tx)
	rows, err := refs(ctx, tx, sweepSQL, after, keepBatch/lanes)
	return rows, wrap("read published rows", err)
}

// refs returns the published rows that a query selects.
func refs(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]readback.Ref, error) {
	answer, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err //nolint:wrapcheck // by the caller
	}
	return pgx.CollectRows(answer, pgx.RowToStructByPos[readback.Ref]) //nolint:wrapcheck // by the caller
}

// keepOnce reads one batch back, and deletes one batch of kept rows. It reports whether there may be more.
func (r *Relay) keepOnce(ctx context.Context, s *session) (full bool, err error) {
	var lost []readback.Ref
	var safe, gone int
	asking, answered := context.WithTimeout(ctx, r.cfg.lease())
	defer answered()
	tx, err := r.begin(asking)
	if err != nil {
		return false, err
	}
	defer r.abandon(ctx, tx) // no effect after the commit
	var mine bool
	if err := tx.QueryRow(asking, "SELECT pg_try_advisory_xact_lock($1)", int64(keepLock)).Scan(&mine); err != nil || !mine {
		return false, wrap("lock", err)
	}
	if safe, lost, err = r.readBack(asking, s, tx); err != nil {
		return false, err
	}
	if gone, err = r.cleanUp(asking, tx); err != nil {
		return false, err
	}
	if err := tx.Commit(asking); err != nil {
		return false, wrap("let rows go", err)
	}
	if r.cfg.Keep == 0 {
		gone += safe
	}
	r.counters.deleted.Add(int64(gone))
	return safe+len(lost) >= keepBatch/lanes || gone >= keepBatch, r.checkLanes(ctx, s, lost)
}

// readBack lets rows go that are old enough and that the stream has. It returns their number, and the lost rows.
func (r *Relay) readBack(ctx context.Context, s *session, tx pgx.Tx) (safe int, lost []readback.Ref, err error) {
	if r.cfg.SyncInterval < 0 {
		return 0, nil, nil
	}
	due, err := refs(ctx, tx, dueSQL, r.cfg.hold().Seconds(), keepBatch/lanes)
	if err != nil || len(due) == 0 {
		return 0, nil, wrap("read due rows", err)
	}
	if lost, err = s.Missing(ctx, due); err != nil {
		return 0, nil, err
	}
	r.cfg.passed(probe.ReadBack)
	safe, err = r.letGo(ctx, tx, without(due, lost))
	return safe, lost, err
}

// letGo deletes rows, or marks them as kept for people to look at. A row that was published again meanwhile stays.
func (r *Relay) letGo(ctx context.Context, tx pgx.Tx, rows []readback.Ref) (int, error) {
	lanes, ids, seqs := make([]int16, len(rows)), make([]int64, len(rows)), make([]int64, len(rows))
	for i, one := range rows {
		lanes[i], ids[i], seqs[i] = one.Lane, one.ID, int64(one.Seq) //nolint:gosec // came out of a bigint
	}
	sql := `DELETE FROM event_outbox o USING unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS a(lane, id, seq)
		WHERE o.lane = a.lane AND o.id = a.id AND o.stream_seq = a.seq AND o.state = 'published'`
	if r.cfg.Keep > 0 {
		sql = `UPDATE event_outbox o SET state = 'kept' FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS a(lane, id, seq)
			WHERE o.lane = a.lane AND o.id = a.id AND o.stream_seq = a.seq AND o.state = 'published'`
	}
	tag, err := tx.Exec(ctx, sql, lanes, ids, seqs)
	return int(tag.RowsAffected()), wrap("let rows go", err)
}

// cleanUp deletes one batch of rows that were kept for Config.Keep.
func (r *Relay) cleanUp(ctx context.Context, tx pgx.Tx) (int, error) {
	if r.cfg.Keep == 0 {
		return 0, nil
	}
	tag, err := tx.Exec(ctx, `DELETE FROM event_outbox WHERE (lane, id) IN (SELECT lane, id FROM event_outbox
		WHERE state = 'kept' AND published_at < now() - make_interval(secs => $1) ORDER BY published_at LIMIT $2)`,
		r.cfg.Keep.Seconds(), keepBatch)
	if err != nil {
		return 0, wrap("delete kept rows", err)
	}
	return int(tag.RowsAffected()), nil
}

// checkLanes makes all rows that the stream has lost pending again, in the lanes of the given rows, one lane at a time.
func (r *Relay) checkLanes(ctx context.Context, s *session, lost []readback.Ref) error {
	checked := make(map[int16]bool, len(lost))
	for _, one := range lost {
		if checked[one.Lane] {
			continue
		}
		checked[one.Lane] = true
		tx, err := r.lock(ctx, one.Lane)
		if err != nil {
			return err
		}
		total, err := r.checkLane(ctx, s, tx, one.Lane)
		if err == nil {
			err = r.commit(ctx, tx)
		}
		if err != nil {
			r.abandon(ctx, tx)
			return wrap("check a lane", err)
		}
		r.reportLost(ctx, one.Lane, total)
		r.notify()
	}
	return nil
}

// lock begins a transaction that holds a lane. It waits for the relay that holds the lane now, for up to the lease and an answer.
// A relay that holds a lane never waits for another, so there is no deadlock.
func (r *Relay) lock(ctx context.Context, lane int16) (pgx.Tx, error) { //nolint:ireturn // as begin
	asking, answered := context.WithTimeout(ctx, r.cfg.lease()+r.cfg.answer)
	defer answered()
	tx, err := r.begin(asking)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(asking, "SELECT FROM event_outbox_lane WHERE lane = $1 FOR UPDATE", lane); err != nil {
		r.abandon(ctx, tx)
		return nil, wrap("lock a lane", err)
	}
	return tx, nil
}

// reportLost counts rows that are pending again. It is called after the commit, so that the count never runs ahead of the table.
func (r *Relay) reportLost(ctx context.Context, lane int16, rows int) {
	if rows == 0 {
		return
	}
	r.counters.lost.Add(int64(rows))
	r.cfg.Logger.WarnContext(ctx, EventLost, "lane", lane, "rows", rows)
}

// abandon ends a transaction that failed.
func (r *Relay) abandon(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.answer)
	defer cancel()
	tx.Rollback(ctx) //nolint:errcheck,gosec // an error means that the connection is closed, which ends the locks
}

// checkLane looks for all published rows of a locked lane in the stream, makes the lost ones pending, and returns their number.
func (r *Relay) checkLane(ctx context.Context, s *session, tx pgx.Tx, lane int16) (total int, err error) {
	for after := int64(0); ; {
		lost, last, err := r.checkPage(ctx, s, tx, lane, after)
		if err != nil || last == 0 {
			return total, err
		}
		total += lost
		after = last
	}
}

// checkPage is checkLane for up to keepBatch rows after an id. It returns the last id, 0 when there are no rows.
func (r *Relay) checkPage(ctx context.Context, s *session, tx pgx.Tx, lane int16, after int64) (n int, last int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.lease())
	defer cancel()
	rows, err := refs(ctx, tx, `SELECT id, event_id, lane, stream_seq FROM event_outbox
		WHERE lane = $1 AND state = 'published' AND id > $2 ORDER BY id LIMIT $3`, lane, after, keepBatch)
	if err != nil || len(rows) == 0 {
		return 0, 0, wrap("read a lane", err)
	}
	lost, err := s.Missing(ctx, rows)
	if err != nil {
		return 0, 0, err
	}
	ids := make([]int64, len(lost))
	for i, one := range lost {
		ids[i] = one.ID
	}
	if _, err := tx.Exec(ctx, `UPDATE event_outbox SET state = 'pending', stream_seq = NULL, published_at = NULL
		WHERE lane = $1 AND id = ANY($2)`, lane, ids); err != nil {
		return 0, 0, wrap("make rows pending", err)
	}
	return len(lost), rows[len(rows)-1].ID, nil
}

// without returns the rows that are not among the lost.
func without(rows, lost []readback.Ref) []readback.Ref {
	if len(lost) == 0 {
		return rows
	}
	gone := make(map[int64]bool, len(lost))
	for _, one := range lost {
		gone[one.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(rows), func(one readback.Ref) bool { return gone[one.ID] })
}
