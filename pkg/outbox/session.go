package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// session is one connection to NATS. It never reconnects: once it is closed, each message that was sent over it has arrived or never will.
// A connection that reconnects would send its buffered messages later.
type session struct {
	js        jetstream.JetStream
	nc        *nats.Conn
	publisher *contracts.Publisher // compares events
	stream    string
	timeout   time.Duration // of each request

	closed chan struct{}
}

// connect starts a session. It costs one round trip after the connection, or two.
func (r *Relay) connect(ctx context.Context) (*session, error) {
	s := &session{stream: r.cfg.Stream, timeout: r.cfg.PublishTimeout, closed: make(chan struct{})}
	var once sync.Once
	logged := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		r.cfg.Logger.WarnContext(ctx, "outbox.connection_error", "error", err)
	})
	opts := append([]nats.Option{nats.Name("outbox relay"), logged}, r.cfg.NATSOptions...)
	opts = append(opts, nats.NoReconnect(), nats.RetryOnFailedConnect(false),
		nats.ClosedHandler(func(*nats.Conn) { once.Do(func() { close(s.closed) }) }))
	var err error
	if s.nc, err = nats.Connect(r.cfg.NATSURL, opts...); err != nil {
		return nil, fmt.Errorf("outbox: connect to NATS at %s: %w", redact.URL(r.cfg.NATSURL), redact.Error(err))
	}
	s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncTimeout(s.timeout), jetstream.WithDefaultTimeout(s.timeout))
	if err == nil {
		publishing := contracts.PublisherConfig{Stream: s.stream}
		if r.cfg.Fingerprint != nil {
			publishing.Fingerprint = r.fingerprint
		}
		s.publisher, err = contracts.NewPublisher(s.js, publishing)
	}
	if err == nil {
		err = s.check(ctx)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close ends the session and waits until its goroutines have ended.
func (s *session) close() {
	s.nc.Close()
	<-s.closed
	if s.js != nil {
		s.js.CleanupPublisher()
	}
}

// alive reports whether the connection is open, as far as the client knows.
func (s *session) alive() bool {
	select {
	case <-s.closed:
		return false
	default:
		return s.nc.IsConnected()
	}
}

// check asks the leader of the stream for a sign of life, or any replica where the account may not ask the leader. One round trip, or two.
func (s *session) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.js.Stream(ctx, s.stream)
	if errors.Is(err, nats.ErrNoResponders) {
		err = s.publisher.Compare(ctx, 1, contracts.Event{EventID: "-", EventType: "-", AggregateType: "-"})
	}
	if err != nil && !errors.Is(err, contracts.ErrEventMismatch) && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("outbox: stream %s: %w", s.stream, err)
	}
	return nil
}

// answer is the outcome of one publish.
type answer struct {
	ack *jetstream.PubAck
	err error
}

// await waits until a publish is acknowledged or refused, or the connection is closed. An answer that is there counts although the
// connection is closed.
func (s *session) await(sent sending) (got answer) {
	got.err = sent.err
	if sent.future != nil {
		select {
		case got.ack = <-sent.future.Ok():
		case got.err = <-sent.future.Err():
		case <-s.closed:
			select {
			case got.ack = <-sent.future.Ok():
			case got.err = <-sent.future.Err():
			default:
				got.err = errSession
			}
		}
	}
	if _, never := errors.AsType[hopelessError](got.err); got.err != nil && !never {
		got.err = fmt.Errorf("publish to %s of stream %s: %w", sent.to, s.stream, got.err)
	}
	return got
}

// class is the kind of a failed publish.
type class int

const (
	unclear   class = iota // the outcome is unknown; try again
	refused                // the server refused this event; try again, maxAttempts times
	hopeless               // the server will never take this event
	elsewhere              // the server takes no event now; try again
)

// classify returns the class of a publish's error.
func classify(err error) class {
	_, never := errors.AsType[hopelessError](err)
	api, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case never, errors.Is(err, contracts.ErrEventMismatch), jsapi.IsTooLarge(err), errors.Is(err, nats.ErrBadSubject):
		return hopeless
	case errors.Is(err, nats.ErrBadHeaderMsg): // not of the row, whose headers were checked
		return elsewhere
	case !ok:
		return unclear
	case jsapi.IsOtherStream(err), jsapi.IsInProcess(err), jsapi.HasCode(err, jsapi.CodeStreamSealed), api.Code == 429, api.Code >= 500:
		return elsewhere
	}
	return refused
}

// closeTimeout bounds the close of a connection.
const closeTimeout = time.Second

// listen wakes a batch when rows are committed. While it cannot listen, batches look for rows every Config.Poll.
func (r *Relay) listen(ctx context.Context) {
	var failures int
	for ctx.Err() == nil {
		err := r.listenOnce(ctx, &failures)
		r.failed(ctx, "listen", err, &failures)
	}
}

// listenOnce listens on one connection until the connection fails. It pings the connection every Config.Poll.
func (r *Relay) listenOnce(ctx context.Context, failures *int) error {
	asking, answered := context.WithTimeout(ctx, r.cfg.answer)
	defer answered()
	pooled, err := r.cfg.Pool.Acquire(asking)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	conn := pooled.Hijack() // a connection that listens does not go back to the pool
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		conn.Close(ctx)
	}()
	if _, err := conn.Exec(asking, "LISTEN event_outbox"); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	*failures = 0
	for {
		r.notify() // also for rows that were committed before LISTEN
		if err := r.awaitNotification(ctx, conn); err != nil {
			return err
		}
	}
}

func (r *Relay) awaitNotification(ctx context.Context, conn *pgx.Conn) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, r.cfg.Poll)
		_, err := conn.WaitForNotification(bounded)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("wait for a notification: %w", err)
		}
		bounded, cancel = context.WithTimeout(ctx, min(r.cfg.Poll, r.cfg.answer))
		err = conn.Ping(bounded)
		cancel()
		if err != nil {
			return fmt.Errorf("ask the connection: %w", err)
		}
	}
}
