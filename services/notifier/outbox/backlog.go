package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxCount is up to how many rows are counted: counting reads them.
const maxCount = 100_000

// Backlog is what waits in an outbox.
type Backlog struct {
	// Rows is how many are committed and not yet published, up to 100,000.
	Rows int64

	// Oldest is how long ago the oldest of them was inserted, 0 when there is none.
	Oldest time.Duration

	// SetAside is how many wait for a person, up to 100,000.
	SetAside int64
}

// backlogSQL looks at the first row of each lane for the oldest: ids grow with time there. All of it is asked of indexes.
const backlogSQL = `SELECT
	(SELECT count(*) FROM (SELECT FROM event_outbox WHERE state = 'pending' LIMIT $1) AS counted),
	(SELECT coalesce(extract(epoch FROM clock_timestamp() - min(first.created_at)), 0)::float8 FROM event_outbox_lane l CROSS JOIN LATERAL (
		SELECT created_at FROM event_outbox o WHERE o.lane = l.lane AND o.state = 'pending' ORDER BY o.id LIMIT 1) AS first),
	(SELECT count(*) FROM (SELECT FROM event_outbox WHERE state = 'set_aside' LIMIT $1) AS counted)`

// Queryer is where ReadBacklog asks.
type Queryer interface {
	// QueryRow asks for one row.
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// ReadBacklog asks what waits. One round trip; a backlog of 100,000 rows takes some ten milliseconds.
func ReadBacklog(ctx context.Context, db Queryer) (Backlog, error) {
	var b Backlog
	var oldest float64
	if err := db.QueryRow(ctx, backlogSQL, maxCount).Scan(&b.Rows, &oldest, &b.SetAside); err != nil {
		return Backlog{}, fmt.Errorf("outbox: read the backlog: %w", err)
	}
	b.Oldest = max(0, time.Duration(oldest*float64(time.Second)))
	return b, nil
}
