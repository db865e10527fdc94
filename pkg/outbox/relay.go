package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
)

const (
	// minBackoff and maxBackoff are the first and the longest wait after a failure of the database or the server.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// Relay publishes the rows of an outbox. Any number of relays may run on one table, in any number of processes.
type Relay struct {
	cfg      Config
	counters counters
	forget   func()        // unregisters the metrics
	wake     chan struct{} // there may be rows
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
	wait := retryDelay{}
	for ctx.Err() == nil {
		s, err := r.connect(ctx)
		if err != nil {
			delay := wait.next()
			r.notReady(ctx, err, delay)
			backoff.Sleep(ctx, delay)
			continue
		}
		wait = retryDelay{}
		r.cfg.Logger.InfoContext(ctx, EventConnected, "server", s.nc.ConnectedServerName(), "stream", s.stream)
		if r.cfg.Hooks.Ready != nil {
			r.cfg.Hooks.Ready(true, nil)
		}
		r.serve(ctx, s)
		if ctx.Err() == nil {
			delay := wait.next()
			r.notReady(ctx, errSession, delay)
			backoff.Sleep(ctx, delay)
		}
	}
}

func (r *Relay) notReady(ctx context.Context, err error, delay time.Duration) {
	if ctx.Err() != nil {
		return
	}
	r.counters.failed(err)
	r.cfg.Logger.WarnContext(ctx, EventDisconnected, "error", err, "delay", delay)
	if r.cfg.Hooks.Ready != nil {
		r.cfg.Hooks.Ready(false, err)
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

// failed logs an error, and waits.
func (r *Relay) failed(ctx context.Context, doing string, err error, wait *retryDelay) {
	if ctx.Err() != nil {
		return
	}
	delay := wait.next()
	r.counters.failed(fmt.Errorf("%s: %w", doing, err))
	r.cfg.Logger.WarnContext(ctx, EventFailed, "doing", doing, "error", err, "delay", delay)
	backoff.Sleep(ctx, delay)
}

// retryDelay is the wait after failures in a row.
type retryDelay struct{ last time.Duration }

// next returns the next wait: twice the last, up to maxBackoff, ±20 %.
func (d *retryDelay) next() time.Duration {
	d.last = min(max(2*d.last, minBackoff), maxBackoff)
	return jitter(d.last)
}

func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // no secret
}

// Names of the events that a relay logs, as the message of the record.
const (
	// EventConnected (info): the relay is connected to NATS and publishes. Fields "server", "stream".
	EventConnected = "outbox.connected"

	// EventConnectionError (warn): an error of the connection to NATS, which may close it. Field "error". An error handler in
	// Config.NATSOptions replaces this event.
	EventConnectionError = "outbox.connection_error"

	// EventDisconnected (warn): there is no connection to NATS, or the stream does not answer. Fields "error", "delay".
	EventDisconnected = "outbox.disconnected"

	// EventFailed (warn): the database failed, or the stream did not answer; the relay tries again. Fields "doing", "error",
	// "delay".
	EventFailed = "outbox.failed"

	// EventListenFailed (warn): the relay gets no notifications and looks for rows every Config.Poll. Fields "error", "delay".
	EventListenFailed = "outbox.listen_failed"

	// EventRefused (warn): the server refused an event; the relay tries again. Fields "event_id", "attempt", "delay", "error".
	EventRefused = "outbox.refused"

	// EventSetAside (error): an event was set aside. Fields "event_id", "reason".
	EventSetAside = "outbox.set_aside"
)

// Hooks observe a relay. Each may be nil. They are called from the goroutines that do the work, so they must be quick and must
// not block.
type Hooks struct {
	// Ready is called with true when the relay publishes, and with false and the reason when it cannot.
	Ready func(ready bool, reason error)

	// Sending is called with the headers of each event before the event is published, and may add headers. Its result is called with the
	// error of the publish, nil for none.
	Sending func(header nats.Header) (sent func(error))
}

var (
	// ErrNoSchema is returned when the database has no table event_outbox.
	ErrNoSchema = errors.New("outbox: the table event_outbox is missing: apply outbox.Schema")

	// errSession ends the work on a connection that is closed.
	errSession = errors.New("outbox: the connection to NATS is closed")
)
