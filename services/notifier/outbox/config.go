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
	// lanes is how many there are; the schema has the number too.
	lanes = 64

	// lanesAtOnce is how many lanes one batch takes, so that there are some for the other batches and relays.
	lanesAtOnce = 8

	// maxBytes is the size of the largest event, by the sizes of its columns.
	maxBytes = contracts.MaxBody

	// batchBytes bounds the rows of one batch, but for the last row of each lane.
	batchBytes = 8 << 20

	// batchTime is for how long a batch publishes. Each of its transactions ends soon after that: they keep others from
	// vacuuming.
	batchTime = 5 * time.Second

	// answerTimeout bounds what is asked of the database at once. One whose machine is gone does not answer, and does not end the
	// connection either.
	answerTimeout = 10 * time.Second

	// minSyncInterval is the shortest that rows are kept: the clocks of two processes are in play.
	minSyncInterval = time.Second
)

// Config says how a relay runs.
type Config struct {
	// BatchSize is how many rows one transaction publishes at most. Defaults to 512.
	BatchSize int

	// Concurrency is how many batches are under way at a time; each has a connection to the database. There are two more:
	// one that listens and one that reads back. Defaults to 2.
	Concurrency int

	// Hooks are called as rows pass. Defaults to none.
	Hooks Hooks

	// Keep is how long rows stay in the table after they were read back, for people to look at. Defaults to 0: not at all.
	Keep time.Duration

	// Logger receives the events of event.go. Defaults to slog.Default().
	Logger *slog.Logger

	// MaxAttempts is how often the server may refuse a row before it is set aside. Times at which the server did not answer
	// anybody do not count. Defaults to 10.
	MaxAttempts int

	// Meters makes the metrics of the relay, see the package. Defaults to none.
	Meters metric.MeterProvider

	// NATSOptions are for the relay's connection, which is its own: one that is lost is not repaired but replaced, so that
	// nothing that was sent over it can arrive after what is sent over the next. Defaults to none.
	NATSOptions []nats.Option

	// NATSURL is where the server is. Defaults to nats://127.0.0.1:4222.
	NATSURL string

	// Poll is how often the relay looks for rows of which it was not told. Defaults to 10 seconds.
	Poll time.Duration

	// Pool connects to the database. It needs Concurrency + 2 connections. Required.
	Pool *pgxpool.Pool

	// PublishTimeout is how long the stream may take to acknowledge one event. Defaults to 5 seconds.
	PublishTimeout time.Duration

	// Source says who tells the events, a URI reference: the source attribute of CloudEvents. Defaults to "/events".
	Source string

	// Stream is the stream that the events are published to. It has to keep messages by limits, any number of a subject.
	// Defaults to contracts.StreamEvents.
	Stream string

	// SyncInterval is how long the servers of the stream may take to sync what they have acknowledged (their
	// sync_interval). A row is read back and deleted an eighth later. Negative means that they sync before they acknowledge
	// (sync_interval: always): rows are deleted when they are published. Defaults to 2 minutes, as it does for servers.
	SyncInterval time.Duration

	// answer is another answerTimeout, in tests.
	answer time.Duration

	// passed is called at each point, in tests.
	passed func(point string)
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
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.passed == nil {
		cfg.passed = func(string) {}
	}
	return cfg
}

// hold is how long a published row is kept before it is read back.
func (cfg Config) hold() time.Duration { return cfg.SyncInterval + cfg.SyncInterval/8 }

// lease is for how long a process that says nothing keeps its lanes.
func (cfg Config) lease() time.Duration { return 2 * (batchTime + cfg.PublishTimeout) }

// validate reports everything that is wrong at once.
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
