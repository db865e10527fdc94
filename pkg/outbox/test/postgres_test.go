package outbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
)

// database returns a new database, with the outbox in it.
func database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := emptyDatabase(t)
	if err := outbox.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

// emptyDatabase returns a new database.
func emptyDatabase(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), outboxtest.Database(t, installed.Postgres.Find(t))+" pool_max_conns=8")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
