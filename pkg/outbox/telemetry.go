package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/metric"
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
	m := &meters{meter: r.cfg.Meters.Meter("github.com/expediter-io/expediter/pkg/outbox")}
	duplicates := m.counter("outbox.duplicates", "{row}", "Rows published that the stream had already.")
	published := m.counter("outbox.published", "{row}", "Rows that the stream has acknowledged and that are deleted.")
	refused := m.counter("outbox.refused", "{attempt}", "Times at which the server refused a row that is tried again.")
	setAside := m.counter("outbox.set_aside", "{row}", "Rows set aside by this relay.")
	pending := m.gauge("outbox.backlog", "{row}", "Rows of the table that are not yet published, up to 100,000.")
	oldest := m.seconds("outbox.backlog.age", "How long ago the oldest row was inserted that is not yet published.")
	waiting := m.gauge("outbox.backlog.set_aside", "{row}", "Rows of the table that are set aside, up to 100,000.")
	failed := m.seconds("outbox.last_error.time", "Time of the last error, in seconds since 1970; absent without one.")
	if m.err != nil {
		return fmt.Errorf("outbox: telemetry: %w", m.err)
	}
	registration, err := m.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
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
	}, m.all...)
	if err != nil {
		return fmt.Errorf("outbox: telemetry: %w", err)
	}
	r.forget = func() { _ = registration.Unregister() } // it is registered
	return nil
}

// meters creates instruments, and keeps the first error.
type meters struct {
	all   []metric.Observable
	err   error
	meter metric.Meter
}

func (m *meters) counter(name, unit, description string) metric.Int64ObservableCounter {
	c, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.made(c, err)
	return c
}

func (m *meters) gauge(name, unit, description string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.made(g, err)
	return g
}

func (m *meters) seconds(name, description string) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
	m.made(g, err)
	return g
}

func (m *meters) made(one metric.Observable, err error) {
	m.all = append(m.all, one)
	if m.err == nil {
		m.err = err
	}
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
