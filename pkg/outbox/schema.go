package outbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
)

// Schema is the SQL that creates the tables of the outbox in the first schema of the search path, for Postgres 14 and later.
// Applying it again changes nothing.
//
//go:embed schema.sql
var Schema string

// schemaVersion is the comment that Schema sets on the table.
const schemaVersion = "expediter outbox 2"

// schemaLock is the advisory lock that keeps two programs from creating the tables at the same time.
const schemaLock = 0x6f7574626f78 // "outbox"

// lockNotAvailable is the SQLSTATE of a lock that was not had in time.
const lockNotAvailable = "55P03"

const (
	// lockTimeout is how long a change of the table waits for its lock. Writers wait behind it.
	lockTimeout = 100 * time.Millisecond

	// lockPause is the pause before the next attempt, in which writers go on.
	lockPause = 500 * time.Millisecond
)

// Migrate applies Schema in one transaction, unless it has been applied. The user of the pool must own the tables, or have the
// right to create them.
//
// The change of a table of an older version needs it for itself, for some milliseconds. While a transaction holds the table,
// writers wait for Migrate for a tenth of a second at a time, and Migrate tries again until ctx ends.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	for checkSchema(ctx, pool) != nil {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(schemaLock)); err != nil {
				return err //nolint:wrapcheck // wrapped below
			}
			_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d;%s", lockTimeout.Milliseconds(), Schema))
			return err //nolint:wrapcheck // wrapped below
		})
		failed, isPostgres := errors.AsType[*pgconn.PgError](err)
		busy := isPostgres && failed.Code == lockNotAvailable
		switch {
		case err == nil:
			return nil
		case !busy || !backoff.Pause(ctx, lockPause):
			return fmt.Errorf("outbox: apply the schema: %w", err)
		}
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
