package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/internal/meters"
)

// backlogTimeout bounds the query of the backlog for the metrics. It leaves a scrape, which may have 5 seconds, time for the other
// metrics.
const backlogTimeout = 2 * time.Second

// measure registers Stats and the backlog as metrics, until forget is called.
func (r *Relay) measure() error {
	r.forget = func() {}
	if r.cfg.Meters == nil {
		return nil
	}
	m := meters.New(r.cfg.Meters.Meter("github.com/expediter-io/expediter/pkg/outbox"))
	duplicates := m.Counter("outbox.duplicates", "{row}", "Rows published that the stream had already.")
	published := m.Counter("outbox.published", "{row}", "Rows that the stream has acknowledged and that are deleted.")
	refused := m.Counter("outbox.refused", "{attempt}", "Times at which the server refused a row that is tried again.")
	setAside := m.Counter("outbox.set_aside", "{row}", "Rows set aside by this relay.")
	pending := m.Gauge("outbox.backlog", "{row}", "Rows of the table that are not yet published, up to 100,000.")
	oldest := m.Float("outbox.backlog.age", "s", "How long ago the oldest row was inserted that is not yet published.")
	waiting := m.Gauge("outbox.backlog.set_aside", "{row}", "Rows of the table that are set aside, up to 100,000.")
	failed := m.Float("outbox.last_error.time", "s", "Time of the last error, in seconds since 1970; absent without one.")
	stop, err := m.Observe(func(ctx context.Context, o metric.Observer) error {
		s := r.Stats()
		for counter, n := range map[metric.Int64Observable]int64{
			duplicates: s.Duplicates, published: s.Published, refused: s.Refused, setAside: s.SetAside,
		} {
			o.ObserveInt64(counter, n)
		}
		if !s.LastErrorAt.IsZero() {
			o.ObserveFloat64(failed, float64(s.LastErrorAt.UnixMilli())/1000)
		}
		ctx, cancel := context.WithTimeout(ctx, backlogTimeout)
		defer cancel()
		b, err := ReadBacklog(ctx, r.cfg.Pool)
		if err != nil {
			r.counters.failed(err)
			return err
		}
		o.ObserveInt64(pending, b.Rows)
		o.ObserveFloat64(oldest, b.Oldest.Seconds())
		o.ObserveInt64(waiting, b.SetAside)
		return nil
	})
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	r.forget = func() { _ = stop() } // it is registered
	return nil
}

// maxCount bounds the rows that are counted, because a count reads them.
const maxCount = 100_000

// Backlog counts the rows that wait in an outbox.
type Backlog struct {
	// Rows is the number of committed rows that are not published yet, up to 100,000.
	Rows int64

	// Oldest is the age of the oldest of these rows, 0 when there are none.
	Oldest time.Duration

	// SetAside is the number of rows that are set aside, up to 100,000.
	SetAside int64
}

// backlogSQL takes the oldest row from the first rows of the lanes, because ids grow with time there. It uses indexes only.
const backlogSQL = `SELECT
	(SELECT count(*) FROM (SELECT FROM event_outbox WHERE state = 'pending' LIMIT $1) AS counted),
	(SELECT least(coalesce(extract(epoch FROM clock_timestamp() - min(first.created_at)), 0), 9e9)::float8
		FROM event_outbox_lane l CROSS JOIN LATERAL (
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
