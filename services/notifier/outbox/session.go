package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// session is one connection to NATS. It is never repaired: when it is closed all that was sent over it has arrived or never
// will, which a connection that comes back cannot promise of what it had buffered.
type session struct {
	closed  chan struct{}
	js      jetstream.JetStream
	nc      *nats.Conn
	stream  string
	timeout time.Duration
}

// connect starts a session. Two round trips after the connection.
func (r *Relay) connect(ctx context.Context) (*session, error) {
	s := &session{closed: make(chan struct{}), stream: r.cfg.Stream, timeout: r.cfg.PublishTimeout}
	var once sync.Once
	logged := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		r.cfg.Logger.WarnContext(ctx, EventConnectionError, "error", err)
	})
	opts := append([]nats.Option{nats.Name("outbox relay"), logged}, r.cfg.NATSOptions...)
	opts = append(opts, nats.NoReconnect(), nats.RetryOnFailedConnect(false),
		nats.ClosedHandler(func(*nats.Conn) { once.Do(func() { close(s.closed) }) }))
	var err error
	if s.nc, err = nats.Connect(r.cfg.NATSURL, opts...); err != nil {
		return nil, fmt.Errorf("outbox: connect to NATS: %w", err)
	}
	s.js, err = jetstream.New(s.nc, jetstream.WithPublishAsyncTimeout(s.timeout), jetstream.WithDefaultTimeout(s.timeout))
	if err == nil {
		err = s.check(ctx)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close ends the session and waits until nothing of it runs.
func (s *session) close() {
	s.nc.Close()
	<-s.closed
	if s.js != nil {
		s.js.CleanupPublisher()
	}
}

// alive reports whether the connection is there, as far as is known.
func (s *session) alive() bool {
	select {
	case <-s.closed:
		return false
	default:
		return s.nc.IsConnected()
	}
}

// check asks for the stream, and returns ErrUnsuitableStream where what is published to it cannot be read back.
func (s *session) check(ctx context.Context) error {
	info, err := s.info(ctx)
	if err != nil {
		return err
	}
	switch c := info.Config; {
	case c.Retention != jetstream.LimitsPolicy:
		return fmt.Errorf("%w: %s has the retention %s: want limits", ErrUnsuitableStream, s.stream, c.Retention)
	case c.MaxMsgsPerSubject > 0:
		return fmt.Errorf("%w: %s keeps %d messages of a subject: want no limit", ErrUnsuitableStream, s.stream, c.MaxMsgsPerSubject)
	}
	return nil
}

// info asks whoever leads the stream.
func (s *session) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return nil, fmt.Errorf("outbox: stream %s: %w", s.stream, err)
	}
	return stream.CachedInfo(), nil
}

// answer is what became of one publish.
type answer struct {
	ack *jetstream.PubAck
	err error
}

// await waits for the acknowledgement of one publish, or for the end of the connection or of ctx.
func (s *session) await(ctx context.Context, future jetstream.PubAckFuture) answer {
	select {
	case ack := <-future.Ok():
		return answer{ack: ack}
	case err := <-future.Err():
		return answer{err: err}
	default:
	}
	select {
	case ack := <-future.Ok():
		return answer{ack: ack}
	case err := <-future.Err():
		return answer{err: err}
	case <-s.closed:
		return answer{err: errSession}
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	}
}

// verdict is what follows from a publish that failed.
type verdict int

const (
	unclear   verdict = iota // nobody knows; try again
	refused                  // the server does not want this one; try again, but not for ever
	hopeless                 // it never will
	elsewhere                // the server wants none now
)

// Codes of JetStream's errors, see the server's errors.json.
const (
	codeMessageExceedsMaximum = 10054
	codeStreamMismatch        = 10060
	codeHeaderExceedsMaximum  = 10097
	codeMsgIDInProcess        = 10158
)

// judge tells what a failed publish means.
func judge(err error) verdict {
	api, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return hopeless
	case !ok:
		return unclear
	case api.ErrorCode == codeMessageExceedsMaximum, api.ErrorCode == codeHeaderExceedsMaximum:
		return hopeless
	case api.ErrorCode == codeStreamMismatch, api.ErrorCode == codeMsgIDInProcess, api.Code == 429, api.Code >= 500:
		return elsewhere
	}
	return refused
}
