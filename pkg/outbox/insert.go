package outbox

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Event is an event that an application writes into the outbox.
type Event struct {
	Event contracts.Event

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

const insertSQL = `INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, user_id, occurred_at, not_before,
	payload, extra, headers, ordering_key)
	SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 WHERE pg_client_encoding() = 'UTF8'`

// ownBytes is room in a message for the headers of the relay and its hook, and in a row for the ids.
const ownBytes = 2 << 10

// maxHeader is the size of the largest headers that a stream takes.
const maxHeader = 64<<10 - 1

// Insert writes events into the outbox, in one round trip. They are published once the transaction is committed.
//
// For an event that can never be published, Insert returns an error before it sends a statement to the database. It measures the event
// against 1 MiB, the max_payload of NATS servers by default. An event whose id is in
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
			errs = append(errs, fmt.Errorf("outbox: event %.80q: %w", e.Event.EventID, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	results := tx.SendBatch(ctx, batch)
	for _, e := range sorted {
		tag, err := results.Exec()
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("%w: client_encoding of the connection (or a trigger of yours dropped the row)", ErrEncoding)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("outbox: insert event %.80q: %w", e.Event.EventID, err), results.Close())
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
	case e.Unordered, e.OrderingKey == "" && e.Event.AggregateID == "":
		return ""
	case e.OrderingKey != "":
		return e.OrderingKey
	}
	return e.Event.AggregateType + "/" + e.Event.AggregateID
}

// queue adds the event's insert to a batch.
func (e Event) queue(batch *pgx.Batch) error {
	event := e.Event
	msg, err := compose(event, e.Headers, contracts.StreamEvents)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"EventID": event.EventID, "EventType": event.EventType, "AggregateType": event.AggregateType, "AggregateID": event.AggregateID,
		"UserID": event.UserID, "OrderingKey": e.OrderingKey,
	} {
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			return fmt.Errorf("%s is %.80q: Postgres keeps no NUL, and nothing but UTF-8", name, text)
		}
	}
	var headers []byte
	if len(e.Headers) > 0 {
		if headers, err = json.Marshal(e.Headers); err != nil {
			return fmt.Errorf("encode the headers: %w", err)
		}
	}
	extra, err := encodeExtra(event.Extra)
	if err != nil {
		return err
	}
	if size := msg.Size() - len(msg.Subject) - len(msg.Data); size > maxHeader-ownBytes {
		return fmt.Errorf("%d bytes of headers are too many: use at most %d", size, maxHeader-ownBytes)
	}
	size := max(msg.Size(), len(event.Payload)+len(extra)+len(headers)) // of the message, and of the row
	if size > maxBytes-ownBytes {
		return fmt.Errorf("%d bytes with headers are too many: use at most %d. A server whose max_payload is 1 MiB, as by default, takes no "+
			"more with the relay's headers; Insert does not know that of your server", size, maxBytes-ownBytes)
	}
	batch.Queue(insertSQL,
		event.EventID, event.EventType, event.AggregateType, event.AggregateID, event.UserID,
		pgtype.Timestamptz{Time: event.OccurredAt, Valid: !event.OccurredAt.IsZero()},
		pgtype.Timestamptz{Time: event.NotBefore, Valid: !event.NotBefore.IsZero()},
		orNull(event.Payload), orNull(extra), orNull(headers), e.key())
	return nil
}

// encodeExtra returns the document of the column extra, nil for none. It keeps the bytes of the values.
func encodeExtra(extra map[string]json.RawMessage) ([]byte, error) {
	extra = maps.Clone(extra)
	maps.DeleteFunc(extra, func(_ string, value json.RawMessage) bool { return len(value) == 0 })
	if len(extra) == 0 {
		return nil, nil
	}
	var document bytes.Buffer
	encoder := json.NewEncoder(&document)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(extra); err != nil {
		return nil, fmt.Errorf("encode Extra: %w", err)
	}
	return document.Bytes(), nil
}

// Requeue makes rows that were set aside pending again: the rows with the given ids, or all such rows if no id is given. They are
// published after rows of the same key that were published in the meantime. It returns the number of rows.
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
	if err := checkSchema(ctx, pool); !errors.Is(err, ErrNoSchema) {
		return err
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

// checkSchema returns ErrNoSchema where Schema has not been applied, and ErrEncoding for another encoding than UTF8: Postgres would convert
// what Insert writes and the relay reads.
func checkSchema(ctx context.Context, pool *pgxpool.Pool) error {
	var applied bool
	var server, client string
	if err := pool.QueryRow(ctx, "SELECT to_regclass('event_outbox') IS NOT NULL, getdatabaseencoding(), pg_client_encoding()").
		Scan(&applied, &server, &client); err != nil {
		return fmt.Errorf("outbox: look for the table event_outbox: %w", err)
	}
	switch name := pool.Config().ConnConfig.Database; {
	case server != "UTF8":
		return fmt.Errorf("%w: database %q has %s: create one with ENCODING 'UTF8'", ErrEncoding, name, server)
	case client != "UTF8":
		return fmt.Errorf("%w: client_encoding is %s on connections to database %q: remove it from the connection string and the role",
			ErrEncoding, client, name)
	case !applied:
		return ErrNoSchema
	}
	return nil
}
