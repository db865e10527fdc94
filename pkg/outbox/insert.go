package outbox

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Event is an event that an application writes into the outbox.
type Event struct {
	contracts.Event

	// Headers are headers of the message, such as traceparent. Names that start with "Nats-" are refused. Defaults to none.
	Headers map[string]string

	// OrderingKey is the key within which events keep their order. Defaults to the aggregate, "<AggregateType>/<AggregateID>", or to none
	// without an AggregateID.
	OrderingKey string

	// Unordered reports whether the event needs no order: it then waits for no other event. Defaults to false.
	Unordered bool
}

// Batcher inserts rows: pgx.Tx, *pgx.Conn, *pgxpool.Pool. Only a transaction commits the events together with the application's
// own data.
type Batcher interface {
	// SendBatch sends statements in one round trip.
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

const insertSQL = `INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, recipient_type, restaurant_id, user_id,
	occurred_at, payload, recipients, headers, ordering_key, not_before) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`

// Insert writes events into the outbox, in one round trip. They are published once the transaction is committed.
//
// For an event that can never be published, Insert returns an error before it sends a statement to the database. An event whose id is in
// the outbox already is an error of the database (a unique violation, SQLSTATE 23505), which fails the transaction. Insert sorts the
// events by key, see the package documentation, and keeps the order of each key.
func Insert(ctx context.Context, tx Batcher, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(a, b Event) int { return cmp.Compare(a.key(), b.key()) })
	batch := &pgx.Batch{}
	var errs []error
	for _, e := range sorted {
		if err := e.queue(batch); err != nil {
			errs = append(errs, fmt.Errorf("outbox: event %.80q: %w", e.EventID, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	results := tx.SendBatch(ctx, batch)
	for _, e := range sorted {
		if _, err := results.Exec(); err != nil {
			return errors.Join(fmt.Errorf("outbox: insert event %.80q: %w", e.EventID, err), results.Close())
		}
	}
	if err := results.Close(); err != nil {
		return fmt.Errorf("outbox: insert: %w", err)
	}
	return nil
}

// key returns the ordering key of the row.
func (e Event) key() string {
	switch {
	case e.Unordered, e.OrderingKey == "" && e.AggregateID == "":
		return ""
	case e.OrderingKey != "":
		return e.OrderingKey
	}
	return e.AggregateType + "/" + e.AggregateID
}

// queue adds the event's insert to a batch.
func (e Event) queue(batch *pgx.Batch) error {
	if err := e.Validate(); err != nil {
		return err
	}
	var headers, recipients []byte
	var err error
	if len(e.Headers) > 0 {
		if err := checkHeaders(e.Headers); err != nil {
			return err
		}
		if headers, err = json.Marshal(e.Headers); err != nil {
			return fmt.Errorf("encode the headers: %w", err)
		}
	}
	if len(e.Recipients) > 0 {
		if recipients, err = json.Marshal(e.Recipients); err != nil {
			return fmt.Errorf("encode the recipients: %w", err)
		}
	}
	if size := len(e.Payload) + len(recipients) + len(headers); size > maxBytes {
		return fmt.Errorf("%d bytes are too many, at most %d", size, maxBytes)
	}
	batch.Queue(insertSQL,
		e.EventID, e.EventType, e.AggregateType, e.AggregateID, string(e.RecipientType), orNull(e.RestaurantID), e.UserID,
		timeOrNull(e.OccurredAt), orNull(e.Payload), orNull(recipients), orNull(headers), e.key(), timeOrNull(e.NotBefore))
	return nil
}

// Requeue makes rows that were set aside pending again: the rows with the given ids, or all such rows if no id is given. They are
// published after rows of the same key that were published meanwhile. It returns the number of rows.
func Requeue(ctx context.Context, pool *pgxpool.Pool, eventIDs ...string) (int64, error) {
	tag, err := pool.Exec(ctx, `WITH back AS (
			UPDATE event_outbox SET state = 'pending', attempts = 0, retry_at = NULL
			WHERE state = 'set_aside' AND (event_id = ANY($1) OR cardinality($1::text[]) = 0) RETURNING 1)
		SELECT pg_notify('event_outbox', '') FROM back`, append([]string{}, eventIDs...))
	if err != nil {
		return 0, fmt.Errorf("outbox: requeue: %w", err)
	}
	return tag.RowsAffected(), nil
}

func orNull(raw []byte) any {
	if len(raw) == 0 {
		return nil
	}
	return string(raw) // unchanged: a json column keeps each byte
}

func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// Schema is the SQL that creates the tables of the outbox in the first schema of the search path, for Postgres 14 and later.
// Applying it again changes nothing.
//
//go:embed schema.sql
var Schema string

// schemaLock is the advisory lock that keeps two programs from creating the tables at the same time.
const schemaLock = 0x6f7574626f78 // "outbox"

// Migrate applies Schema in one transaction, unless it has been applied. The user of the pool must own the tables, or have the
// right to create them.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if checkSchema(ctx, pool) == nil {
		return nil
	}
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(schemaLock)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, Schema)
		return err
	}); err != nil {
		return fmt.Errorf("outbox: apply the schema: %w", err)
	}
	return nil
}

// checkSchema returns ErrNoSchema where Schema has not been applied.
func checkSchema(ctx context.Context, pool *pgxpool.Pool) error {
	var applied bool
	if err := pool.QueryRow(ctx, "SELECT to_regclass('event_outbox') IS NOT NULL").Scan(&applied); err != nil {
		return fmt.Errorf("outbox: look for the table event_outbox: %w", err)
	}
	if !applied {
		return ErrNoSchema
	}
	return nil
}
