package outbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

// database returns a new database, with the outbox in it.
func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := emptyDatabase(t)
	check.OK(t, outbox.Migrate(t.Context(), pool))
	return pool
}

// emptyDatabase returns a new database.
func emptyDatabase(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), outboxtest.Database(t, installed.Postgres.Find(t))+" pool_max_conns=8")
	check.OK(t, err)
	t.Cleanup(pool.Close)
	return pool
}
