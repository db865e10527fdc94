package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/strictjson"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// claimSQL locks lanes that have rows to publish, beginning at lane $1. It reads the index once for each lane; with EXISTS the planner may
// scan the table instead. A later statement reads the rows: a statement that both locks and reads would read the rows as they were before
// it had the locks.
const claimSQL = `SELECT l.lane FROM event_outbox_lane l
	WHERE (SELECT o.id FROM event_outbox o WHERE o.lane = l.lane AND o.state = 'pending'
		AND (o.retry_at IS NULL OR o.retry_at <= now()) ORDER BY o.id LIMIT 1) IS NOT NULL
	ORDER BY (l.lane - $1) & 63 LIMIT $2 FOR UPDATE SKIP LOCKED`

// readSQL reads the first rows of each of the lanes $1, up to $2 rows and $3 bytes of each. It leaves out rows whose key waits
// for a refused row.
const readSQL = `SELECT ` + rowValues + ` FROM unnest($1::smallint[]) AS wanted(wanted_lane) CROSS JOIN LATERAL (
		SELECT ` + rowColumns + `, sum(least(bytes, $4)) OVER (ORDER BY id) - least(bytes, $4) AS before FROM (
			SELECT ` + rowColumns + ` FROM event_outbox o WHERE o.lane = wanted_lane AND o.state = 'pending'
				AND NOT EXISTS (SELECT FROM event_outbox b WHERE b.lane = wanted_lane AND b.state = 'pending' AND b.retry_at > now()
					AND (b.id = o.id OR b.ordering_key = o.ordering_key AND b.ordering_key <> '') OFFSET 0)
			ORDER BY o.id LIMIT $2) front) bounded
	WHERE before < $3 ORDER BY id`

// waitingSQL returns whether there are rows to publish, which are then in lanes that other batches hold, and the number of seconds until
// the next refused row may be tried again.
const waitingSQL = `SELECT EXISTS (SELECT FROM event_outbox_lane l WHERE (SELECT o.id FROM event_outbox o WHERE o.lane = l.lane
		AND o.state = 'pending' AND (o.retry_at IS NULL OR o.retry_at <= now()) ORDER BY o.id LIMIT 1) IS NOT NULL),
	(SELECT least(extract(epoch FROM min(retry_at)) - extract(epoch FROM now()), 86400)::float8 FROM event_outbox
		WHERE state = 'pending' AND retry_at > now())`

// lockSQL locks those of the rows that no other transaction has locked.
const lockSQL = `SELECT o.id FROM event_outbox o JOIN unnest($1::smallint[], $2::bigint[]) AS a(lane, id)
	ON o.lane = a.lane AND o.id = a.id FOR UPDATE OF o SKIP LOCKED`

// begin starts a transaction that Postgres ends when this process is silent for the lease, so that another relay gets the lanes.
// All statements of a relay use an index. The planner's statistics are old for a table whose rows come and go. A scan of the whole table
// in each batch would make the time to drain it grow with the square of its size.
func (r *Relay) begin(ctx context.Context) (pgx.Tx, error) { //nolint:ireturn // pgx returns an interface
	tx, err := r.cfg.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, BeginQuery: fmt.Sprintf(
		"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = %d; SET LOCAL lock_timeout = %d; "+
			"SET LOCAL client_encoding = 'UTF8'; SET LOCAL datestyle = 'ISO'; SET LOCAL bytea_output = 'hex'; "+ // for values in text format
			"SET LOCAL enable_seqscan = off; SET LOCAL jit = off",
		r.cfg.lease().Milliseconds(), lockTimeout.Milliseconds())})
	if err != nil {
		return nil, fmt.Errorf("outbox: begin: %w", err)
	}
	return tx, nil
}

// claim locks lanes that have rows, and reads the first rows of each lane.
func (r *Relay) claim(ctx context.Context, tx pgx.Tx, from int) (claimed []int16, rows []*row, err error) {
	answer, err := tx.Query(ctx, claimSQL, from, lanesAtOnce)
	if err == nil {
		claimed, err = pgx.CollectRows(answer, pgx.RowTo[int16])
	}
	if err != nil || len(claimed) == 0 {
		return nil, nil, wrap("claim lanes", err)
	}
	each := max(r.cfg.BatchSize/len(claimed), 1)
	answer, err = tx.Query(ctx, readSQL, claimed, each, batchBytes/len(claimed), maxBytes)
	if err == nil {
		rows, err = pgx.CollectRows(answer, pgx.RowToAddrOfStructByPos[row])
	}
	return claimed, rows, wrap("read rows of event_outbox", err)
}

// doubt notes whether lanes may have rows that cannot be marked. A batch of such lanes is careful: without care it would publish
// all its rows again each time that it cannot mark one of them.
func (r *Relay) doubt(these []int16, is bool) {
	for _, lane := range these {
		r.doubtful[lane&(lanes-1)].Store(is)
	}
}

func (r *Relay) inDoubt(these []int16) bool {
	return slices.ContainsFunc(these, func(lane int16) bool { return r.doubtful[lane&(lanes-1)].Load() })
}

// unlocked returns the rows that no other transaction has locked, without later rows of the keys of those that one has. Only lanes with
// such rows stay in doubt.
func (r *Relay) unlocked(ctx context.Context, tx pgx.Tx, claimed []int16, rows []*row) ([]*row, error) {
	of, ids := make([]int16, len(rows)), make([]int64, len(rows))
	for i, one := range rows {
		of[i], ids[i] = one.Lane, one.ID
	}
	var free []int64
	_, err := tx.Exec(ctx, "LOCK TABLE event_outbox IN ROW EXCLUSIVE MODE") // fails while an index is made, as the marks would
	if err == nil {
		var answer pgx.Rows
		if answer, err = tx.Query(ctx, lockSQL, of, ids); err == nil {
			free, err = pgx.CollectRows(answer, pgx.RowTo[int64])
		}
	}
	if err != nil {
		return nil, wrap("lock rows of event_outbox", err)
	}
	r.doubt(claimed, false)
	held := map[string]bool{}
	rows = slices.DeleteFunc(rows, func(one *row) bool {
		locked := !slices.Contains(free, one.ID)
		if locked {
			r.doubt([]int16{one.Lane}, true)
		}
		waits := locked || held[one.OrderingKey]
		held[one.OrderingKey] = waits && one.OrderingKey != ""
		return waits
	})
	return rows[:min(len(rows), carefulRows)], nil
}

// idle returns the time for which a batch that found no rows waits before it looks again, unless it is woken.
func (r *Relay) idle(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.answer)
	defer cancel()
	tx, err := r.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer r.abandon(ctx, tx)
	var busy bool
	var due *float64
	if err := tx.QueryRow(ctx, waitingSQL).Scan(&busy, &due); err != nil {
		return 0, wrap("look for rows", err)
	}
	wait := r.cfg.Poll
	if due != nil {
		wait = min(wait, max(time.Duration(*due*float64(time.Second)), minBackoff))
	}
	if busy { // another batch holds the lanes and publishes their rows, unless its process dies
		wait = min(wait, time.Second)
	}
	return retry.Spread(wait, jitter), nil
}

// abandon ends a transaction that failed.
func (r *Relay) abandon(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.answer)
	defer cancel()
	tx.Rollback(ctx)
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outbox: %s: %w", doing, err)
}

// row is a row of the table. It takes every value that a column can have: a row that cannot be read would stop the others of its batch.
type row struct {
	ID            int64
	Lane          int16
	Bytes         int
	Attempts      int
	OrderingKey   string
	EventID       string
	EventType     string
	AggregateType string
	AggregateID   string
	UserID        string
	OccurredAt    pgtype.Timestamptz
	NotBefore     pgtype.Timestamptz
	Payload       []byte
	Extra         []byte
	Headers       []byte
}

// rowColumns are the columns of a row, in its order. rowValues are the expressions that are read into it: documents are NULL where the row
// is too large to be published, and texts are cut where they are longer than any that is valid.
const (
	rowColumns = `id, lane, bytes, attempts, ordering_key, event_id, event_type, aggregate_type, aggregate_id, user_id,
	occurred_at, not_before, payload, extra, headers`
	rowValues = `id, lane, bytes, attempts, coalesce(left(ordering_key::text, 400), ''), coalesce(left(event_id::text, 400), ''),
	coalesce(left(event_type::text, 400), ''), coalesce(left(aggregate_type::text, 400), ''), coalesce(left(aggregate_id::text, 400), ''),
	coalesce(left(user_id::text, 400), ''), occurred_at, not_before,
	CASE WHEN bytes <= $4 THEN convert_to(payload::text, 'UTF8') END,
	CASE WHEN bytes <= $4 THEN convert_to(extra::text, 'UTF8') END,
	CASE WHEN bytes <= $4 THEN convert_to(headers::text, 'UTF8') END`
)

// message returns the message of the row. An error means that the row can never be published.
func (r *row) message(stream string, subjectOf func(contracts.Event) (string, error)) (*nats.Msg, error) {
	event, err := r.event()
	if err != nil {
		return nil, err
	}
	var headers map[string]string
	if len(r.Headers) > 0 {
		if err := json.Unmarshal(r.Headers, &headers); err != nil {
			return nil, fmt.Errorf("headers: want an object of strings: %w", err)
		}
	}
	msg, err := compose(event, headers, stream)
	if err == nil {
		msg.Subject, err = subjectOf(event)
	}
	return msg, err
}

// compose returns the message of an event with the headers of the application.
func compose(event contracts.Event, headers map[string]string, stream string) (*nats.Msg, error) {
	msg, err := event.Msg("/events")
	if err != nil {
		return nil, err
	}
	own := slices.Collect(maps.Keys(msg.Header))
	for name, value := range headers {
		if err := validate.Header(name, value); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(own, func(taken string) bool { return strings.EqualFold(name, taken) }) {
			return nil, fmt.Errorf("header %q is the event's: leave it out", name)
		}
		msg.Header[name] = []string{value}
	}
	msg.Header[nats.ExpectedStreamHdr] = []string{stream}
	return msg, nil
}

// event returns the event of the columns.
func (r *row) event() (contracts.Event, error) {
	if r.Bytes > maxBytes {
		return contracts.Event{}, fmt.Errorf("%d bytes are too many, at most %d", r.Bytes, maxBytes)
	}
	event := contracts.Event{
		EventID: r.EventID, EventType: r.EventType, AggregateType: r.AggregateType, AggregateID: r.AggregateID,
		UserID: r.UserID, Payload: r.Payload,
	}
	var errs []error
	event.OccurredAt, errs = finite("occurred_at", r.OccurredAt, errs)
	event.NotBefore, errs = finite("not_before", r.NotBefore, errs)
	if len(r.Extra) > 0 && strictjson.Kind(r.Extra) != "null" {
		type Extra map[string]json.RawMessage
		extra, err := contracts.Read[Extra](r.Extra)
		if err != nil {
			errs = append(errs, fmt.Errorf("extra: %w", err))
		}
		event.Extra = extra
	}
	return event, errors.Join(errs...)
}

// finite returns the time of a column, zero for NULL.
func finite(column string, t pgtype.Timestamptz, errs []error) (time.Time, []error) {
	if t.InfinityModifier != pgtype.Finite {
		errs = append(errs, fmt.Errorf("%s is %s: want a time, or NULL", column, t.InfinityModifier))
	}
	return t.Time.UTC(), errs
}
