package outbox_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/outbox"
	"github.com/expediter-io/expediter/pkg/outbox/internal/probe"
)

// mortalRelay is a relay that kills its process at a point.
var mortalRelay = crash.Role[duty]{Name: "relay", Run: relayAndDie}

// duty is the task of a relay process.
type duty struct {
	After    int // it dies when it passes Point for this time
	Database string
	Point    string // of package probe
	Sync     int    // seconds
	URL      string
}

func relayAndDie(ctx context.Context, d duty) error {
	pool, err := pgxpool.New(ctx, d.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := outbox.New(probe.With(ctx, probe.Probe{Passed: child.DieAt(d.Point, d.After)}), outbox.Config{
		BatchSize: 8, Concurrency: 1, Logger: slog.New(slog.DiscardHandler), NATSURL: d.URL, Pool: pool,
		SyncInterval: time.Duration(d.Sync) * time.Second,
	})
	if err != nil {
		return err
	}
	r.Run(ctx)
	return nil
}
