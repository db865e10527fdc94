package outbox

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/validate"
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

	// carefulRows bounds a batch whose rows are marked one by one, in three round trips each, to what fits into answerTimeout.
	carefulRows = 32

	// lockTimeout bounds the wait for a row or table that another transaction has locked.
	lockTimeout = time.Second

	// longestWait bounds Poll and PublishTimeout: Postgres takes no timeout above 24 days.
	longestWait = 24 * time.Hour
)

// Config is the configuration of a relay.
type Config struct {
	// BatchSize is the largest number of rows that one transaction publishes. Defaults to 512.
	BatchSize int

	// Concurrency is the number of batches at a time, each on a connection to the database. One more connection listens. Defaults to 2.
	Concurrency int

	// Hooks are called as rows pass. Defaults to none.
	Hooks Hooks

	// Fingerprint distinguishes the events under one id, see contracts.PublisherConfig. Defaults to that of the event.
	Fingerprint func(body []byte) (string, error)

	// Logger receives the events of this package. Defaults to slog.Default().
	Logger *slog.Logger

	// Meters makes the metrics of the relay, see the package. Defaults to none.
	Meters metric.MeterProvider

	// NATSOptions are for the relay's own connection. A lost connection is replaced rather than reconnected: no message of the old connection
	// can then arrive after a message of the new one. Defaults to none.
	NATSOptions []nats.Option

	// NATSURL is the address of the server. Defaults to nats://127.0.0.1:4222.
	NATSURL string

	// Poll is the time between two looks for rows that no notification announced, at most 24 hours. Defaults to 10 seconds.
	Poll time.Duration

	// Pool connects to the database. It needs Concurrency + 1 connections. Required.
	Pool *pgxpool.Pool

	// PublishTimeout is the time within which the stream has to acknowledge an event, at most 24 hours. Defaults to 5 seconds.
	PublishTimeout time.Duration

	// Stream is the stream to which events are published. Defaults to contracts.StreamEvents.
	Stream string

	// Subject returns the subject of an event, or the reason for which it can never be published, which sets the event aside. Defaults to
	// that of the event's types.
	Subject func(contracts.Event) (string, error)

	answer time.Duration      // bounds an answer of the database
	passed func(point string) // called at each point, in tests
}

func (cfg Config) withDefaults() Config {
	cfg.BatchSize = cmp.Or(cfg.BatchSize, 512)
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 2)
	cfg.NATSURL = cmp.Or(cfg.NATSURL, nats.DefaultURL)
	cfg.Poll = cmp.Or(cfg.Poll, 10*time.Second)
	cfg.PublishTimeout = cmp.Or(cfg.PublishTimeout, 5*time.Second)
	cfg.Stream = cmp.Or(cfg.Stream, contracts.StreamEvents)
	cfg.answer = cmp.Or(cfg.answer, answerTimeout)
	cfg.Logger = redact.Logger(cmp.Or(cfg.Logger, slog.Default()))
	if cfg.Hooks.Ready == nil {
		cfg.Hooks.Ready = func(bool, error) {}
	}
	if cfg.Subject == nil {
		cfg.Subject = contracts.Event.Subject
	}
	if cfg.passed == nil {
		cfg.passed = func(string) {}
	}
	return cfg
}

// lease returns the time for which a silent process keeps its lanes.
func (cfg Config) lease() time.Duration { return 2 * (batchTime + cfg.PublishTimeout) }

// validate returns an error that names all mistakes.
func (cfg Config) validate() error {
	err := errors.Join(
		validate.If(cfg.BatchSize < 0, "outbox: BatchSize is %d: want a positive number", cfg.BatchSize),
		validate.If(cfg.Concurrency < 0, "outbox: Concurrency is %d: want a positive number", cfg.Concurrency),
		validate.If(cfg.Poll < 0 || cfg.Poll > longestWait, "outbox: Poll is %s: want a positive duration, at most %s", cfg.Poll, longestWait),
		validate.If(cfg.PublishTimeout < 0 || cfg.PublishTimeout > longestWait,
			"outbox: PublishTimeout is %s: want a positive duration, at most %s", cfg.PublishTimeout, longestWait),
		validate.If(cfg.Pool == nil, "outbox: Pool is missing: want the database with the table event_outbox"))
	if cfg.Pool != nil {
		conns := int(cfg.Pool.Config().MaxConns)
		err = errors.Join(err, validate.If(conns <= cfg.Concurrency,
			"outbox: Pool has at most %d connections: want Concurrency + 1, %d", conns, cfg.Concurrency+1))
	}
	return err
}
