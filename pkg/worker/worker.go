package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/api"
	"github.com/expediter-io/expediter/pkg/worker/internal/excuse"
	"github.com/expediter-io/expediter/pkg/worker/internal/gate"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
	"github.com/expediter-io/expediter/pkg/worker/internal/limit"
	"github.com/expediter-io/expediter/pkg/worker/internal/pull"
)

const (
	deadKept       = 30 * 24 * time.Hour
	deadWindow     = 24 * time.Hour
	firstWait      = 50 * time.Millisecond // of a backoff against the server
	lastWait       = 2 * time.Second
	prepareTimeout = 5 * time.Second
)

// Worker works the jobs of one consumer, or of one for each priority of its handlers. Make it with [New], give it handlers with
// [Handle], then call Run once.
type Worker struct {
	cfg      Config
	classes  []*class // of the handlers, the highest priority first
	excuses  *excuse.Store
	journals *journal.Store
	js       jetstream.JetStream
	limited  bool // some handler has limits
	log      *slog.Logger
	nc       *nats.Conn
	routes   []*route
	started  atomic.Bool

	// Of a run.
	acks     *lastAcks
	drained  chan struct{}   // closed when no more messages come
	down     atomic.Bool     // reported as not ready
	jobs     context.Context //nolint:containedctx // parent of every handler's context; ends at the soft deadline
	mute     atomic.Bool     // says no more of jobs that run
	limits   *limit.Set      // nil without limits
	losses   atomic.Int32    // since the server last gave a sign of life
	puller   *pull.Puller
	running  sync.WaitGroup  // deliveries that are not abandoned
	settling context.Context //nolint:containedctx // ends when outcomes are no longer recorded
	slots    *gate.Gate
	stopping context.Context //nolint:containedctx // ends when no more jobs are taken
	table    table
	watch    watch
	watching sync.WaitGroup
}

// New returns a worker that pulls through js. It makes no request: what is missing on the
// server is reported by Run. Every invalid field of cfg is reported at once.
func New(js jetstream.JetStream, cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()

	err := cfg.validate()
	if js == nil {
		err = errors.Join(errors.New("worker: New needs a JetStream context, got nil"), err)
	}

	if err != nil {
		return nil, err
	}

	return &Worker{
		cfg: cfg, excuses: excuse.New(js, cfg.Bucket), js: js, nc: js.Conn(),
		journals: journal.New(journal.Config{
			Bucket: cfg.StepBucket, Conn: js.Conn(), Prefix: api.Prefix(js),
			Request: cfg.RequestTimeout, Settle: cfg.SettleTimeout, TTL: cfg.StepTTL,
		}),
		log:     cfg.Logger.With("worker", cfg.ID, "stream", cfg.Stream, "consumer", cfg.Consumer),
		drained: make(chan struct{}), slots: gate.New(cfg.Concurrency),
		table: table{ended: newEndings(), jobs: make(map[uint64]*delivery, cfg.Concurrency)},
	}, nil
}

// sleep waits and reports true, or false when ctx ends first.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// sleepUntil is sleep with a time at which it returns false, if not earlier.
func sleepUntil(ctx context.Context, wait time.Duration, until time.Time) bool {
	left := time.Until(until)

	return sleep(ctx, min(wait, left)) && left > wait
}
