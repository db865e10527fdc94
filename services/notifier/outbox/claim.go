package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// claimSQL locks lanes that have rows to publish, beginning at $1. Each lane's question is one look into the index, which
// "EXISTS" would not be: the planner may turn it into a scan of the table. The rows are read by a later statement: one that
// both locked and read would read what was there before it had the locks.
const claimSQL = `SELECT l.lane FROM event_outbox_lane l
	WHERE (SELECT o.id FROM event_outbox o WHERE o.lane = l.lane AND o.state = 'pending'
		AND (o.retry_at IS NULL OR o.retry_at <= now()) ORDER BY o.id LIMIT 1) IS NOT NULL
	ORDER BY (l.lane - $1) & 63 LIMIT $2 FOR UPDATE SKIP LOCKED`

// readSQL reads from the front of each of the lanes $1 up to $2 rows and $3 bytes, without those whose key waits for a row
// that was refused.
const readSQL = `SELECT ` + rowValues + ` FROM unnest($1::smallint[]) AS wanted(wanted_lane) CROSS JOIN LATERAL (
		SELECT ` + rowColumns + `, sum(least(bytes, $4)) OVER (ORDER BY id) - least(bytes, $4) AS before FROM (
			SELECT ` + rowColumns + ` FROM event_outbox o WHERE o.lane = wanted_lane AND o.state = 'pending'
				AND NOT EXISTS (SELECT FROM event_outbox b WHERE b.lane = wanted_lane AND b.state = 'pending' AND b.retry_at > now()
					AND (b.id = o.id OR b.ordering_key = o.ordering_key AND b.ordering_key <> '') OFFSET 0)
			ORDER BY o.id LIMIT $2) front) bounded
	WHERE before < $3 ORDER BY id`

// lastSQL is the row that was last published in each of the lanes $1, unless that was longer ago than $2 seconds.
const lastSQL = `SELECT id, event_id, lane, stream_seq, false FROM unnest($1::smallint[]) AS wanted(wanted_lane) CROSS JOIN LATERAL (
		SELECT id, event_id, lane, stream_seq FROM event_outbox WHERE lane = wanted_lane AND state = 'published'
			AND published_at > now() - make_interval(secs => $2) ORDER BY published_at DESC, stream_seq DESC LIMIT 1) last`

// waitingSQL says whether there are rows to publish in lanes that others have, and in how many seconds the next row may be
// tried again.
const waitingSQL = `SELECT EXISTS (SELECT FROM event_outbox_lane l WHERE (SELECT o.id FROM event_outbox o WHERE o.lane = l.lane
		AND o.state = 'pending' AND (o.retry_at IS NULL OR o.retry_at <= now()) ORDER BY o.id LIMIT 1) IS NOT NULL),
	(SELECT extract(epoch FROM min(retry_at) - now())::float8 FROM event_outbox
		WHERE state = 'pending' AND retry_at > now())`

// begin starts a transaction that ends when this process does not speak for a while: then the lanes are another's. All that a
// relay asks is a look into an index. What the planner knows of a table whose rows come and go is old, and a scan of all of
// it in each batch makes the time to drain it grow with its square.
func (r *Relay) begin(ctx context.Context) (pgx.Tx, error) { //nolint:ireturn // pgx has it so
	tx, err := r.cfg.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, BeginQuery: fmt.Sprintf(
		"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = %d; "+
			"SET LOCAL enable_seqscan = off; SET LOCAL jit = off",
		r.cfg.lease().Milliseconds())})
	if err != nil {
		return nil, fmt.Errorf("outbox: begin: %w", err)
	}
	return tx, nil
}

// claim locks lanes that have rows, and reads the first of them; and the last row of each lane that was published.
func (r *Relay) claim(ctx context.Context, tx pgx.Tx, from int) (claimed []int16, rows []*row, last []ref, err error) {
	answer, err := tx.Query(ctx, claimSQL, from, lanesAtOnce)
	if err == nil {
		claimed, err = pgx.CollectRows(answer, pgx.RowTo[int16])
	}
	if err != nil || len(claimed) == 0 {
		return nil, nil, nil, wrap("claim lanes", err)
	}
	each := max(r.cfg.BatchSize/len(claimed), 1)
	batch := &pgx.Batch{}
	batch.Queue(readSQL, claimed, each, batchBytes/len(claimed), maxBytes)
	batch.Queue(lastSQL, claimed, max(r.cfg.hold(), 0).Seconds())
	results := tx.SendBatch(ctx, batch)
	defer func() {
		if closed := results.Close(); err == nil {
			err = wrap("read rows", closed)
		}
	}()
	if answer, err = results.Query(); err == nil {
		rows, err = pgx.CollectRows(answer, pgx.RowToAddrOfStructByPos[row])
	}
	if err != nil {
		return nil, nil, nil, wrap("read rows", err)
	}
	if answer, err = results.Query(); err == nil {
		last, err = pgx.CollectRows(answer, toRef)
	}
	return claimed, rows, last, wrap("read the last rows", err)
}

// toRef reads id, event_id, lane, stream_seq, and whether the row is due.
func toRef(from pgx.CollectableRow) (ref, error) {
	var r ref
	err := from.Scan(&r.id, &r.eventID, &r.lane, &r.seq, &r.due)
	return r, err //nolint:wrapcheck // wrapped by who collects
}

// idle is how long a batch that found nothing waits before it looks again, unless it is woken.
func (r *Relay) idle(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.answer)
	defer cancel()
	tx, err := r.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer r.abandon(ctx, tx)
	var busy bool
	var retry *float64
	if err := tx.QueryRow(ctx, waitingSQL).Scan(&busy, &retry); err != nil {
		return 0, wrap("look for rows", err)
	}
	wait := r.cfg.Poll
	if retry != nil {
		wait = min(wait, max(time.Duration(*retry*float64(time.Second)), minBackoff))
	}
	if busy { // whoever has the lanes finishes them, unless it dies
		wait = min(wait, time.Second)
	}
	return jitter(wait), nil
}

// commit ends a transaction.
func (r *Relay) commit(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.answer)
	defer cancel()
	return tx.Commit(ctx) //nolint:wrapcheck // by the caller
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outbox: %s: %w", doing, err)
}
