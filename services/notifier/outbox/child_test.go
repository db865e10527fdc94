package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

const relayRole = "relay"

// duty says what a relay process does, and where it dies.
type duty struct {
	After    int // it dies at the how manieth time
	Database string
	Point    string // at which point
	Sync     int    // seconds
	URL      string
}

// relayAndDie is the life of a relay process.
func relayAndDie(ctx context.Context, d duty) error {
	pool, err := pgxpool.New(ctx, d.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := New(ctx, Config{
		BatchSize: 8, Concurrency: 1, Logger: slog.New(slog.DiscardHandler), NATSURL: d.URL, Pool: pool,
		SyncInterval: time.Duration(d.Sync) * time.Second, passed: child.DieAt(d.Point, d.After),
	})
	if err != nil {
		return err
	}
	r.Run(ctx)
	return nil
}
