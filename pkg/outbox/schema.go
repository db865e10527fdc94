package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Schema is the SQL that creates the tables of the outbox in the first schema of the search path, for Postgres 14 and later.
// Applying it again changes nothing.
//
//go:embed schema.sql
var Schema string

// schemaVersion is the comment that Schema sets on the table.
const schemaVersion = "expediter outbox 1"

// schemaLock is the advisory lock that keeps two programs from creating the tables at the same time.
const schemaLock = 0x6f7574626f78 // "outbox"

// Migrate applies Schema in one transaction. The user of the pool must own the tables, or have the right to create them.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(schemaLock)); err != nil {
			return err //nolint:wrapcheck // wrapped below
		}
		_, err := tx.Exec(ctx, Schema)
		return err //nolint:wrapcheck // wrapped below
	})
	if err != nil {
		return fmt.Errorf("outbox: apply the schema: %w", err)
	}
	return nil
}

// checkSchema returns ErrNoSchema where Schema has not been applied.
func checkSchema(ctx context.Context, pool *pgxpool.Pool) error {
	var version string
	err := pool.QueryRow(ctx, "SELECT coalesce(obj_description(to_regclass('event_outbox'), 'pg_class'), '')").Scan(&version)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("outbox: look at the table event_outbox: %w", err)
	}
	if version != schemaVersion {
		return fmt.Errorf("%w: its comment is %q, want %q", ErrNoSchema, version, schemaVersion)
	}
	return nil
}
