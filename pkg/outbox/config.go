package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	// lanes is the number of lanes, as in the schema.
	lanes = 64

	// lanesAtOnce is the number of lanes that one batch takes. It leaves lanes for other batches and relays.
	lanesAtOnce = 8

	// maxBytes is the size of the largest event: the sum of its columns.
	maxBytes = contracts.MaxBody

	// batchBytes bounds the rows of one batch, without the last row of each lane.
	batchBytes = 8 << 20

	// batchTime is the time for which a batch publishes. Its transaction ends soon after that, because an open transaction hinders vacuum.
	batchTime = 5 * time.Second

	// answerTimeout bounds an answer of the database. A database whose machine is gone neither answers nor closes the
	// connection.
	answerTimeout = 10 * time.Second

	// minSyncInterval is the least time for which rows are kept, for the clocks of two processes may differ.
	minSyncInterval = time.Second
)

// Config is the configuration of a relay.
type Config struct {
	// BatchSize is the largest number of rows that one transaction publishes. Defaults to 512.
	BatchSize int

	// Concurrency is the number of batches at a time, each on a connection to the database. Two more connections listen and read back.
	// Defaults to 2.
	Concurrency int

	// Hooks are called as rows pass. Defaults to none.
	Hooks Hooks

	// Keep is the time for which rows stay in the table after they were read back, for people to look at. Defaults to 0.
	Keep time.Duration

	// Logger receives the events of this package. Defaults to slog.Default().
	Logger *slog.Logger

	// MaxAttempts is the number of refusals by the server after which a row is set aside. Attempts at a time when the server answers no
	// request do not count. Defaults to 10.
	MaxAttempts int

	// Meters makes the metrics of the relay, see the package. Defaults to none.
	Meters metric.MeterProvider

	// NATSOptions are for the relay's own connection. A lost connection is replaced rather than reconnected: no message of the old connection
	// can then arrive after a message of the new one. Defaults to none.
	NATSOptions []nats.Option

	// NATSURL is the address of the server. Defaults to nats://127.0.0.1:4222.
	NATSURL string

	// Poll is the time between two looks for rows that no notification announced. Defaults to 10 seconds.
	Poll time.Duration

	// Pool connects to the database. It needs Concurrency + 2 connections. Required.
	Pool *pgxpool.Pool

	// PublishTimeout is the time within which the stream has to acknowledge an event. Defaults to 5 seconds.
	PublishTimeout time.Duration

	// Source is the source attribute of CloudEvents, a URI reference to the publisher. Defaults to "/events".
	Source string

	// Stream is the stream to which events are published. It needs limits retention and no limit of messages for a subject. Defaults to
	// contracts.StreamEvents.
	Stream string

	// SyncInterval is the time within which the servers of the stream sync acknowledged messages (their sync_interval). A row is read back
	// and deleted after that time and an eighth of it. A negative value means that they sync before they acknowledge (sync_interval: always):
	// rows are deleted when they are published. Defaults to 2 minutes, as for servers.
	SyncInterval time.Duration

	answer time.Duration      // bounds an answer of the database
	passed func(point string) // called at each point of package probe
}

func (cfg Config) withDefaults() Config {
	cfg.BatchSize = cmp.Or(cfg.BatchSize, 512)
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 2)
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, 10)
	cfg.NATSURL = cmp.Or(cfg.NATSURL, nats.DefaultURL)
	cfg.Poll = cmp.Or(cfg.Poll, 10*time.Second)
	cfg.PublishTimeout = cmp.Or(cfg.PublishTimeout, 5*time.Second)
	cfg.Source = cmp.Or(cfg.Source, "/events")
	cfg.Stream = cmp.Or(cfg.Stream, contracts.StreamEvents)
	cfg.SyncInterval = cmp.Or(cfg.SyncInterval, 2*time.Minute)
	cfg.answer = cmp.Or(cfg.answer, answerTimeout)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.passed == nil {
		cfg.passed = func(string) {}
	}
	return cfg
}

// hold returns the time for which a published row is kept before it is read back.
func (cfg Config) hold() time.Duration { return cfg.SyncInterval + cfg.SyncInterval/8 }

// lease returns the time for which a silent process keeps its lanes.
func (cfg Config) lease() time.Duration { return 2 * (batchTime + cfg.PublishTimeout) }

// validate returns an error that names all mistakes.
func (cfg Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("outbox: "+format, args...)) }
	for _, positive := range []struct {
		name  string
		value int64
	}{
		{"BatchSize", int64(cfg.BatchSize)},
		{"Concurrency", int64(cfg.Concurrency)},
		{"MaxAttempts", int64(cfg.MaxAttempts)},
		{"Poll", int64(cfg.Poll)},
		{"PublishTimeout", int64(cfg.PublishTimeout)},
	} {
		if positive.value < 0 {
			bad("%s is %d: want a positive number", positive.name, positive.value)
		}
	}
	if cfg.Keep < 0 {
		bad("Keep is %s: want 0 or more", cfg.Keep)
	}
	if cfg.SyncInterval >= 0 && cfg.SyncInterval < minSyncInterval {
		bad("SyncInterval is %s: want at least %s, or a negative one where servers sync before they acknowledge",
			cfg.SyncInterval, minSyncInterval)
	}
	switch {
	case cfg.Pool == nil:
		bad("Pool is missing: want the database with the table event_outbox")
	case cfg.Concurrency > 0 && int(cfg.Pool.Config().MaxConns) < cfg.Concurrency+2:
		bad("Pool has at most %d connections: want Concurrency + 2, %d", cfg.Pool.Config().MaxConns, cfg.Concurrency+2)
	}
	return errors.Join(errs...)
}
