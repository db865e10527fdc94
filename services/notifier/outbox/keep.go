package outbox

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
)

const (
	// keepLock lets one relay at a time read back and delete.
	keepLock = schemaLock + 1

	// keepBatch is how many rows are read back, or deleted, in one transaction.
	keepBatch = 2048
)

// dueSQL reads rows that were published $1 seconds ago, oldest first in each lane.
const dueSQL = `SELECT id, event_id, due.lane, stream_seq, true FROM event_outbox_lane l CROSS JOIN LATERAL (
		SELECT id, event_id, lane, stream_seq FROM event_outbox o WHERE o.lane = l.lane AND o.state = 'published'
			AND published_at <= now() - make_interval(secs => $1) ORDER BY published_at, stream_seq LIMIT $2) due`

// keep reads rows back once they are old enough and lets them go. First it reads back all that there are: the server behind
// a new connection may have lost what another acknowledged.
func (r *Relay) keep(ctx context.Context, s *session) {
	wait := backoff{}
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
		wait = backoff{}
		if !full {
			sleep(ctx, jitter(pause))
		}
	}
}

// sweepSQL reads published rows of all lanes, behind the ids $1.
const sweepSQL = `SELECT id, event_id, lane, stream_seq, false
	FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted(after, n) CROSS JOIN LATERAL (
		SELECT id, event_id, lane, stream_seq FROM event_outbox o
		WHERE o.lane = n - 1 AND o.state = 'published' AND o.id > after ORDER BY o.id LIMIT $2) page`

// sweep looks for all published rows in the stream, all lanes side by side, so that they stand close together there.
func (r *Relay) sweep(ctx context.Context, s *session) error {
	for after := make([]int64, lanes); ; {
		rows, err := r.page(ctx, after)
		if err != nil || len(rows) == 0 {
			return err
		}
		lost, err := s.missing(ctx, rows)
		if err != nil {
			return err
		}
		if err := r.checkLanes(ctx, s, lost); err != nil {
			return err
		}
		for _, one := range rows {
			after[one.lane] = max(after[one.lane], one.id)
		}
	}
}

func (r *Relay) page(ctx context.Context, after []int64) ([]ref, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.answer)
	defer cancel()
	tx, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer r.abandon(ctx, tx)
	answer, err := tx.Query(ctx, sweepSQL, after, keepBatch/lanes)
	if err != nil {
		return nil, wrap("read published rows", err)
	}
	rows, err := pgx.CollectRows(answer, toRef)
	return rows, wrap("read published rows", err)
}

// keepOnce reads one batch back, and deletes one of those that were kept. It reports whether there may be more.
func (r *Relay) keepOnce(ctx context.Context, s *session) (full bool, err error) {
	var lost []ref
	var safe, gone int
	asking, answered := context.WithTimeout(ctx, r.cfg.lease())
	defer answered()
	tx, err := r.begin(asking)
	if err != nil {
		return false, err
	}
	defer r.abandon(ctx, tx) // does nothing once it is committed
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
	r.deleted(gone)
	return safe+len(lost) >= keepBatch/lanes || gone >= keepBatch, r.checkLanes(ctx, s, lost)
}

// readBack lets those rows go that are old enough and that the stream has. It returns how many these are, and the others.
func (r *Relay) readBack(ctx context.Context, s *session, tx pgx.Tx) (safe int, lost []ref, err error) {
	if r.cfg.SyncInterval < 0 {
		return 0, nil, nil
	}
	answer, err := tx.Query(ctx, dueSQL, r.cfg.hold().Seconds(), keepBatch/lanes)
	if err != nil {
		return 0, nil, wrap("read due rows", err)
	}
	due, err := pgx.CollectRows(answer, toRef)
	if err != nil || len(due) == 0 {
		return 0, nil, wrap("read due rows", err)
	}
	if lost, err = s.missing(ctx, due); err != nil {
		return 0, nil, err
	}
	r.cfg.passed(pointReadBack)
	safe, err = r.letGo(ctx, tx, without(due, lost))
	return safe, lost, err
}

// letGo deletes rows that are safe, or keeps them for people to look at. One that was published again in the meantime stays.
func (r *Relay) letGo(ctx context.Context, tx pgx.Tx, rows []ref) (int, error) {
	lanes, ids, seqs := make([]int16, len(rows)), make([]int64, len(rows)), make([]int64, len(rows))
	for i, one := range rows {
		lanes[i], ids[i], seqs[i] = one.lane, one.id, int64(one.seq) //nolint:gosec // came out of a bigint
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

// cleanUp deletes rows that were kept for long enough, a batch of them.
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

// checkLanes makes what the stream has lost pending again, in the lanes of these rows, one lane at a time.
func (r *Relay) checkLanes(ctx context.Context, s *session, lost []ref) error {
	checked := make(map[int16]bool, len(lost))
	for _, one := range lost {
		if checked[one.lane] {
			continue
		}
		checked[one.lane] = true
		tx, err := r.lock(ctx, one.lane)
		if err != nil {
			return err
		}
		total, err := r.checkLane(ctx, s, tx, one.lane)
		if err == nil {
			err = r.commit(ctx, tx)
		}
		if err != nil {
			r.abandon(ctx, tx)
			return wrap("check a lane", err)
		}
		r.tellLost(ctx, one.lane, total)
		r.notify()
	}
	return nil
}

// lock begins a transaction that has a lane. It waits for whoever has it, who may keep it for as long as a process may say nothing.
// Nobody waits for a lane while holding one, so this cannot end in a deadlock.
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

// tellLost counts rows that are pending again, once that is committed: whoever reads the count finds them so.
func (r *Relay) tellLost(ctx context.Context, lane int16, rows int) {
	if rows == 0 {
		return
	}
	r.counters.lost.Add(int64(rows))
	r.cfg.Logger.WarnContext(ctx, EventLost, "lane", lane, "rows", rows)
	if r.cfg.Hooks.Lost != nil {
		r.cfg.Hooks.Lost(rows)
	}
}

// abandon ends a transaction that failed.
func (r *Relay) abandon(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.answer)
	defer cancel()
	tx.Rollback(ctx) //nolint:errcheck,gosec // the connection is gone then, and the locks with it
}

// checkLane looks for all published rows of a lane, which is locked, makes those pending that the stream has lost, and returns
// how many.
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

// checkPage does so with some of them, behind an id, and returns the last id, 0 when there are none.
func (r *Relay) checkPage(ctx context.Context, s *session, tx pgx.Tx, lane int16, after int64) (n int, last int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.lease())
	defer cancel()
	answer, err := tx.Query(ctx, `SELECT id, event_id, lane, stream_seq, false FROM event_outbox
		WHERE lane = $1 AND state = 'published' AND id > $2 ORDER BY id LIMIT $3`, lane, after, keepBatch)
	if err != nil {
		return 0, 0, wrap("read a lane", err)
	}
	rows, err := pgx.CollectRows(answer, toRef)
	if err != nil || len(rows) == 0 {
		return 0, 0, wrap("read a lane", err)
	}
	lost, err := s.missing(ctx, rows)
	if err != nil {
		return 0, 0, err
	}
	ids := make([]int64, len(lost))
	for i, one := range lost {
		ids[i] = one.id
	}
	if _, err := tx.Exec(ctx, `UPDATE event_outbox SET state = 'pending', stream_seq = NULL, published_at = NULL
		WHERE lane = $1 AND id = ANY($2)`, lane, ids); err != nil {
		return 0, 0, wrap("make rows pending", err)
	}
	return len(lost), rows[len(rows)-1].id, nil
}

// without returns the rows that are not among the lost.
func without(rows, lost []ref) []ref {
	if len(lost) == 0 {
		return rows
	}
	gone := make(map[int64]bool, len(lost))
	for _, one := range lost {
		gone[one.id] = true
	}
	return slices.DeleteFunc(slices.Clone(rows), func(one ref) bool { return gone[one.id] })
}
