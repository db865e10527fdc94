package kvrecord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/directget"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/validate"
)

// Config configures a [Client]. Only JetStream is required.
type Config struct {
	// JetStream reaches the streams. Its domain or API prefix is used.
	JetStream jetstream.JetStream

	// Prepare is called with the headers of each record that is sent, for example to write trace context into them. It must not change the
	// headers that are there. Defaults to none.
	Prepare func(ctx context.Context, subject string, header nats.Header)

	// Try bounds one request, so that a lost answer leaves time for another request. Defaults to 2 seconds.
	Try time.Duration

	// Timeout bounds one operation, in addition to its context. Defaults to 10 seconds.
	Timeout time.Duration
}

func (c Config) withDefaults() Config {
	c.Try = cmp.Or(c.Try, 2*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	return c
}

func (c Config) validate() error {
	return errors.Join(
		validate.If(c.JetStream == nil, "kvrecord: no JetStream"),
		validate.If(c.Try < 0 || c.Timeout < c.Try,
			"kvrecord: a request has %s and an operation %s: want Try to be positive and Timeout not shorter", c.Try, c.Timeout))
}

// Client reads and writes the records of streams. It sends all requests over one connection, and receives the answers by two
// subscriptions under the connection's inbox prefix. Make it with [New]. It is safe for concurrent use.
type Client struct {
	cfg    Config
	nc     *nats.Conn
	api    jsapi.Client // over single
	single *jsapi.Inbox
	many   *directget.Getter
	ended  context.Context
	end    context.CancelCauseFunc
	once   sync.Once

	mu     sync.Mutex // guards closed, and keeps Close from waiting for work while spawn adds to it
	closed bool
	work   sync.WaitGroup // requests in the background
}

// New returns a Client. Close ends it. No round trip.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, nc: cfg.JetStream.Conn()}
	var err error
	if c.single, err = jsapi.NewInbox(c.nc); err != nil {
		return nil, fmt.Errorf("kvrecord: %w", err)
	}
	c.api = jsapi.Client{Prefix: jsapi.Prefix(cfg.JetStream), Sender: c.single, Within: cfg.Try}
	if c.many, err = directget.New(c.nc, c.api.Prefix, c.single.Down); err != nil {
		return nil, fmt.Errorf("kvrecord: %w", errors.Join(err, c.single.Close()))
	}
	c.ended, c.end = context.WithCancelCause(context.Background()) //nolint:forbidigo // begins with the Client, ends with Close
	return c, nil
}

// Close ends the operations under way with ErrClosed. Calling it again does nothing.
func (c *Client) Close() {
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.end(ErrClosed)
		_ = errors.Join(c.single.Close(), c.many.Close()) // the connection is closed then
		c.work.Wait()
	})
}

// spawn runs work in a goroutine that Close waits for, unless the Client is closed.
func (c *Client) spawn(work func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Go(work)
	}
}

// Stream is a stream of records. Get one from [Client.Stream].
type Stream struct {
	*Client

	name  string
	asked sync.Once    // asks for the time at which the stream was created
	first atomic.Int64 // the first answer to that question, in Unix nanoseconds; 0 until then
	made  atomic.Int64 // the latest
}

// Stream returns the stream with the given name. No round trip: if the stream does not exist, its operations fail.
func (c *Client) Stream(name string) *Stream { return &Stream{Client: c, name: name} }

// Bucket returns the stream of a KV bucket, as Stream does.
func (c *Client) Bucket(name string) *Stream { return c.Stream("KV_" + name) }

// Key returns the subject of a key. The stream is that of a bucket.
func (s *Stream) Key(key string) string {
	return "$KV." + strings.TrimPrefix(s.name, "KV_") + "." + key
}

// bound limits an operation to the configured time, and ends it when the Client closes.
func (s *Stream) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.boundSince(ctx, time.Now())
}

// boundSince is bound for an operation that has begun.
func (s *Stream) boundSince(ctx context.Context, begun time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(ctx, begun.Add(s.cfg.Timeout))
	stop := context.AfterFunc(s.ended, cancel)
	return ctx, func() { stop(); cancel() }
}

// Headers of a record.
const (
	// HeaderWriter is unique to the call of [Stream.Put] that wrote the record.
	HeaderWriter = "Expediter-Writer"

	// HeaderReplaced names the record that was replaced: its revision, a dot, and its writer.
	HeaderReplaced = "Expediter-Replaced"
)

// Record is the last message of a subject.
type Record struct {
	// Subject is the subject of the record.
	Subject string

	// Revision is the sequence of the record in its stream, 0 when there is none.
	Revision uint64

	// Data is the content. It is empty when there is no record, and when a bucket's key was deleted.
	Data []byte

	// Header has the headers of the record, including those of this package. It is nil in a record that Put returned.
	Header nats.Header

	// Stored is the time at which the server stored the record, by the server's clock. It is zero in a record that Put returned.
	Stored time.Time

	// Sent is the time at which this process sent the acknowledged write, by this process's clock. It is zero in a record that was read.
	Sent time.Time

	// AsOf is a sequence of the stream at which this was the last record of its subject, and 0 when the answer did not hold
	// one.
	AsOf uint64

	writer   string
	replaced string
	made     int64 // the time at which its stream was created, as known when the record was read or written
}

// identity names the record in the history of its subject.
func (r Record) identity() string { return strconv.FormatUint(r.Revision, 10) + "." + r.writer }

// replacedBy returns the revision of the record that r replaced, if that record was written by writer.
func (r Record) replacedBy(writer string) (revision uint64, ok bool) {
	number, by, found := strings.Cut(r.replaced, ".")
	if !found || by != writer {
		return 0, false
	}
	revision, err := strconv.ParseUint(number, 10, 64)
	return revision, err == nil
}

// record returns the record of a message that the server returned.
func (s *Stream) record(m jsapi.Message) Record {
	return Record{
		Subject: m.Subject, Revision: m.Sequence, Data: m.Data, Header: m.Header, Stored: m.Time, AsOf: m.AsOf,
		writer: m.Header.Get(HeaderWriter), replaced: m.Header.Get(HeaderReplaced), made: s.made.Load(),
	}
}

// absent returns the Record for a subject without one.
func (s *Stream) absent(subject string) Record { return Record{Subject: subject, made: s.made.Load()} }

// Deleted reports whether the record marks a key of a bucket that was deleted, purged or has expired.
func (r Record) Deleted() bool {
	return r.Header.Get("KV-Operation") != "" || r.Header.Get(jetstream.MarkerReasonHeader) != ""
}

var (
	// ErrConflict is returned when the subject does not hold the record that the write was to replace. The error of Put is a
	// [*ConflictError].
	ErrConflict = errors.New("another record is there")

	// ErrUnavailable is returned when the stream did not answer in time, does not exist, or stores nothing for now. The
	// write may have been stored.
	ErrUnavailable = errors.New("the stream does not answer, or stores nothing for now")

	// ErrFull is returned, beside ErrUnavailable, when the stream, its account or the server is at its limit: an operator
	// has to remove records or to raise the limit. The write was not stored.
	ErrFull = errors.New("the stream is full")

	// ErrTooLarge is returned when the record is larger than the server or the stream accepts. The write was not stored.
	ErrTooLarge = errors.New("the record is too large")

	// ErrClosed is returned when the Client was closed. A write that was under way then may have been stored.
	ErrClosed = errors.New("the client of records is closed")
)

// ConflictError is returned when the subject does not hold the record that a write was to replace.
type ConflictError struct {
	// Found is the subject's record, as the stream's leader has it. Its Revision is 0 when there is none.
	Found Record

	// Unknown reports whether the write may have been stored all the same, and replaced or removed since: its acknowledgement did not come,
	// and the present record does not tell.
	Unknown bool
}

// Error names the subject and the revision that was found.
func (e *ConflictError) Error() string {
	if e.Found.Revision == 0 {
		return e.Found.Subject + ": the record to be replaced is gone"
	}
	return fmt.Sprintf("%s: %v, at revision %d", e.Found.Subject, ErrConflict, e.Found.Revision)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// RefusedAt returns the revision of the record for which the server refused a conditional write of JetStream, 0 when there is none. It
// reports false for any other error, and for a refusal that does not name the revision.
func RefusedAt(err error) (revision uint64, ok bool) {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
		return 0, false
	}
	_, number, _ := strings.Cut(api.Description, "wrong last sequence: ")
	revision, err = strconv.ParseUint(number, 10, 64)
	return revision, err == nil
}

// isPermanent reports whether the same request cannot succeed a moment later.
func isPermanent(err error) bool { return errors.Is(err, jsapi.ErrClosed) || jsapi.IsPermanent(err) }

// refused explains the error of an operation's last request: the server's answer, or, like failed, the reason that none came.
func (s *Stream) refused(ctx context.Context, op string, err error) error {
	switch {
	case jsapi.IsTooLarge(err):
		err = fmt.Errorf("%w: %w", ErrTooLarge, err)
	case jsapi.IsRefused(err):
		err = fmt.Errorf("%w: %w", ErrConflict, err)
	case jsapi.IsFull(err):
		err = fmt.Errorf("%w: %w: %w", ErrFull, ErrUnavailable, err)
	case !isPermanent(err), jsapi.IsNoStream(err), errors.Is(err, jsapi.ErrClosed), errors.Is(err, nats.ErrConnectionClosed):
		return s.failed(ctx, op, err)
	}
	return fmt.Errorf("kvrecord: %s in stream %s: %w", op, redact.Quote(s.name), err)
}

// failed explains the error of an operation that was given up: the Client or ctx ended, or the server did not answer.
func (s *Stream) failed(ctx context.Context, op string, err error) error {
	op = fmt.Sprintf("kvrecord: %s in stream %s", op, redact.Quote(s.name))
	switch {
	case s.ended.Err() != nil, errors.Is(err, jsapi.ErrClosed):
		return fmt.Errorf("%s: %w", op, ErrClosed)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %w: %w", op, context.Cause(ctx), err)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()): // between two requests
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, jsapi.Unanswered(s.nc, err))
}
