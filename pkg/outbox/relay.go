package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/shown"
)

const (
	// minBackoff and maxBackoff are the first and the longest wait after a failure of the database or the server.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second

	// jitter is the share by which the waits of many relays differ, so that they do not fall together.
	jitter = 0.2
)

// Relay publishes the rows of an outbox. Any number of relays may run on one table, in any number of processes.
type Relay struct {
	cfg      Config
	counters counters
	forget   func()        // unregisters the metrics
	wake     chan struct{} // there may be rows

	doubtful [lanes]atomic.Bool // see doubt
}

// Stats counts the work of a relay since New.
type Stats struct {
	// Duplicates is the number of rows in Published that the stream already had.
	Duplicates int64
	// LastError is the last error, "" for none, and LastErrorAt its time. The cause may be gone by now.
	LastError   string
	LastErrorAt time.Time
	// Published is the number of rows that the stream acknowledged and the relay deleted.
	Published int64
	// Refused is the number of refusals by the server after which the relay tries the row again.
	Refused int64
	// SetAside is the number of rows that were set aside.
	SetAside int64
}

type counters struct {
	duplicates, published, refused, setAside atomic.Int64

	last atomic.Pointer[trouble]
}

// trouble is an error and its time.
type trouble struct {
	text string
	at   time.Time
}

// failed records the last error.
func (c *counters) failed(err error) { c.last.Store(&trouble{text: brief(err), at: time.Now()}) }

// New returns a relay. It checks that the table exists, in one round trip. Run connects to NATS.
func New(ctx context.Context, cfg Config) (*Relay, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := checkSchema(ctx, cfg.Pool); err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, wake: make(chan struct{}, 1)}
	if err := r.measure(); err != nil {
		return nil, err
	}
	return r, nil
}

// Stats returns the counters of the relay.
func (r *Relay) Stats() Stats {
	c := &r.counters
	s := Stats{
		Duplicates: c.duplicates.Load(), Published: c.published.Load(), Refused: c.refused.Load(), SetAside: c.setAside.Load(),
	}
	if last := c.last.Load(); last != nil {
		s.LastError, s.LastErrorAt = last.text, last.at
	}
	return s
}

// Run publishes until ctx ends. It may be called once only. At the end of ctx it finishes the rows under way, which takes at
// most 5 seconds and Config.PublishTimeout. It goes on through any outage of the database or the server.
func (r *Relay) Run(ctx context.Context) {
	defer r.forget()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { r.listen(ctx) })
	var failures int
	for ctx.Err() == nil {
		s, err := r.connect(ctx)
		if err == nil {
			failures = 0
			r.cfg.Logger.InfoContext(ctx, "outbox.connected", "server", s.nc.ConnectedServerName(), "stream", s.stream)
			r.hook("Ready", func() { r.cfg.Hooks.Ready(true, nil) })
			r.serve(ctx, s)
			err = errSession
		}
		if ctx.Err() == nil {
			r.hook("Ready", func() { r.cfg.Hooks.Ready(false, err) })
			r.failed(ctx, "publish", err, &failures)
		}
	}
}

// serve works on one connection until it is closed or ctx ends.
func (r *Relay) serve(ctx context.Context, s *session) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-s.closed:
			cancel(errSession)
		case <-ctx.Done():
		}
	})
	r.notify()
	for i := range r.cfg.Concurrency {
		group.Go(func() { r.drain(ctx, s, i*lanes/r.cfg.Concurrency) })
	}
	group.Wait()
	s.close()
}

// notify wakes one batch.
func (r *Relay) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// hook calls a hook. If it panics, the relay logs that and goes on as if there were none.
func (r *Relay) hook(name string, call func()) {
	defer shown.Catch(r.cfg.Logger, "outbox.Hooks."+name)
	call()
}

// failed logs an error of what the relay does, counts it in failures, and waits: twice as long as the last time, ±50 %.
func (r *Relay) failed(ctx context.Context, doing string, err error, failures *int) {
	if ctx.Err() != nil {
		return
	}
	wait := retry.Wait(*failures, minBackoff, maxBackoff)
	*failures++
	r.counters.failed(fmt.Errorf("%s: %w", doing, err))
	r.cfg.Logger.WarnContext(ctx, "outbox.failed", "doing", doing, "error", err, "delay", wait)
	retry.Jitter(ctx, wait)
}

// Hooks observe a relay. Each may be nil. They are called from the goroutines that do the work, so they must be quick and must
// not block. One that panics is logged; what it was called for goes on.
type Hooks struct {
	// Ready is called with true when the relay publishes, and with false and the reason each time that it cannot: there is no connection,
	// or the database or the stream refuses.
	Ready func(ready bool, reason error)

	// Sending is called with the headers of each event before the event is published, and may add headers. Its result, if it is not nil,
	// is called with the error of the publish, nil for none.
	Sending func(header nats.Header) (sent func(error))
}

var (
	// ErrNoSchema is returned when the database has no table event_outbox.
	ErrNoSchema = errors.New("outbox: the table event_outbox is missing: apply outbox.Schema")

	// ErrEncoding is returned when the database, or the connection to it, has an encoding other than UTF8.
	ErrEncoding = errors.New("outbox: the encoding is not UTF8")

	// errSession ends the work on a connection that is closed.
	errSession = errors.New("outbox: the connection to NATS is closed")
)
