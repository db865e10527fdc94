// Package kv reads, writes and watches the entries of a KV bucket, as one process sees them.
//
// It interprets no more of entries than their first line, see [Head]. Package kvlock makes locks of entries, and package flight results.
//
// A [Store] reads entries and writes them conditionally, with an outcome that is always known. Its [Hub] delivers the
// changes of a key to all its watchers, from one subscription and one goroutine.
package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/directget"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/validate"
)

// Store gives one process access to a bucket: reads, conditional writes and pushed changes.
type Store struct {
	// Set by Open.
	Bucket     string
	Stream     string // behind the bucket
	Instance   string
	JS         jetstream.JetStream
	Conn       *nats.Conn
	Log        *slog.Logger // names the bucket
	OpTimeout  time.Duration
	MaxMessage int64 // the largest message of the stream, in bytes; 0 when only the server bounds it
	Hub        *Hub
	Clock      *Clock
	Get        *directget.Getter

	acks   *jsapi.Inbox
	api    jsapi.Client // over acks
	prefix string       // the prefix of the subjects of keys, as read
	put    string       // the prefix of the subjects of keys, as written: differs where JetStream has its own API prefix
	pushed func(Entry) (View, error)
	opened func(context.Context, Entry) View
	remade func()

	// What the store has learned of the bucket; safe for concurrent use.
	generation generation
	highest    atomic.Uint64 // the highest acknowledged revision; a lower one is that of a stream that was recreated

	// The end. Closing ends when BeginClose is called, closed when Close is.
	work         sync.WaitGroup // the goroutines for which Close waits
	Closing      context.Context
	beginClose   context.CancelCauseFunc
	closed       context.Context
	cancelClosed context.CancelCauseFunc
}

// Config configures a [Store].
type Config struct {
	Bucket    string        // required
	Instance  string        // names this process in entries; defaults to host name, process id and a random part
	Logger    *slog.Logger  // defaults to slog.Default()
	OpTimeout time.Duration // bounds each operation; defaults to 2 seconds

	// Pushed and Read decode entries for watchers. Pushed decodes an entry that was pushed. After an error the key is read instead, because
	// anybody could have published that message. Read decodes an entry that was read; the view that it returns for an undecodable entry is
	// delivered like any other.
	Pushed func(Entry) (View, error)
	Read   func(context.Context, Entry) View

	// Remade is called, in a separate goroutine, when the generation of the bucket has grown. Defaults to none.
	Remade func()
}

// MaxInstanceBytes bounds the name of a process.
const MaxInstanceBytes = 256

const defaultOpTimeout = 2 * time.Second

// WithDefaults returns cfg with the defaults in place of zero values.
func (cfg Config) WithDefaults() Config {
	if cfg.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		cfg.Instance = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), nuid.Next()[16:])
	}
	cfg.Logger = redact.Logger(cmp.Or(cfg.Logger, slog.Default()))
	cfg.OpTimeout = cmp.Or(cfg.OpTimeout, defaultOpTimeout)
	return cfg
}

// Validate returns an error that names every mistake in cfg.
func (cfg Config) Validate() error {
	return errors.Join(
		CheckBucket(cfg.Bucket),
		validate.If(cfg.OpTimeout < 0 || cfg.OpTimeout > MaxTTL,
			"kvlock: OpTimeout is %s: want a positive duration, at most %s", cfg.OpTimeout, MaxTTL),
		validate.If(len(cfg.Instance) > MaxInstanceBytes,
			"kvlock: Instance has %d bytes: the limit is %d", len(cfg.Instance), MaxInstanceBytes))
}

// Open binds to the bucket and checks the settings of its stream. cfg has to be valid, with its defaults. BeginClose and Close end the
// store. One round trip.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Store, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.OpTimeout)
	defer cancel()
	clock, sent := newClock(), time.Now()
	info, err := StreamInfo(ctx, js, cfg.Bucket, StreamName(cfg.Bucket), Maker)
	if err != nil {
		return nil, err
	}
	clock.asked(sent, time.Now(), info.TimeStamp)
	if err := CheckStream(cfg.Bucket, info.Config); err != nil {
		return nil, err
	}

	s := &Store{
		Bucket: cfg.Bucket, Stream: StreamName(cfg.Bucket), Instance: cfg.Instance, JS: js, Conn: js.Conn(),
		Log:       cfg.Logger.With("bucket", cfg.Bucket),
		OpTimeout: cfg.OpTimeout, MaxMessage: int64(max(info.Config.MaxMsgSize, 0)), Clock: clock,
		api: jsapi.Client{Prefix: jsapi.Prefix(js), Within: SendTimeout}, prefix: SubjectPrefix(cfg.Bucket), pushed: cfg.Pushed, opened: cfg.Read,
		remade: cfg.Remade,
	}
	s.generation.asks = make(chan struct{}, 1)
	s.Closing, s.beginClose = context.WithCancelCause(context.Background())  //nolint:forbidigo // begins with the store
	s.closed, s.cancelClosed = context.WithCancelCause(context.Background()) //nolint:forbidigo // as above
	s.generation.known.Store(known(generationOf(info), sent, s.Conn.Stats().Reconnects))
	s.put = s.api.Target(s.prefix)
	if err := s.subscribe(); err != nil {
		s.unsubscribe()
		return nil, fmt.Errorf("kvlock: bind bucket %q: %w", cfg.Bucket, err)
	}
	s.Hub = newHub(s, info.Config.RePublish)
	return s, nil
}

// subscribe subscribes to the answers of requests.
func (s *Store) subscribe() (err error) {
	if s.acks, err = jsapi.NewInbox(s.Conn); err != nil {
		return err
	}
	s.api.Sender = s.acks
	s.Get, err = directget.New(s.Conn, s.api.Prefix, s.acks.Down)
	return err
}

// unsubscribe ends the subscriptions that subscribe has made, even if subscribe failed. An error means that the connection is closed.
func (s *Store) unsubscribe() {
	if s.acks != nil {
		_ = s.acks.Close()
	}
	if s.Get != nil {
		_ = s.Get.Close()
	}
}

// StreamInfo asks for a stream until a server answers: a cluster does not answer while it elects a leader, for instance
// after the stream was created. bucket names it in errors, and maker the function that makes it.
func StreamInfo(ctx context.Context, js jetstream.JetStream, bucket, name, maker string) (*jetstream.StreamInfo, error) {
	if err := CheckBucket(bucket); err != nil {
		return nil, err
	}
	for n := 0; ; n++ {
		try, cancel := context.WithTimeout(ctx, SendTimeout/2)
		stream, err := js.Stream(try, name)
		cancel()
		denied.Failed(ctx, err)
		switch {
		case err == nil:
			return stream.CachedInfo(), nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return nil, fmt.Errorf("kvlock: bind bucket %q: %w: make it with %s", bucket, err, maker)
		case errors.Is(err, nats.ErrConnectionClosed):
			return nil, fmt.Errorf("kvlock: bind bucket %q: %w", bucket, err)
		case retry.Backoff(ctx, n, minSettleWait, maxSettleWait):
		case errors.Is(ctx.Err(), context.Canceled): // the client's error says no more then
			return nil, fmt.Errorf("kvlock: bind bucket %q: %w", bucket, context.Cause(ctx))
		default:
			return nil, fmt.Errorf("kvlock: bind bucket %q: %w: %w", bucket, ErrUnavailable, jsapi.Unanswered(js.Conn(), err))
		}
	}
}

// BeginClose ends all waits with ErrClosed. Operations still work, so that callers can release their claims.
func (s *Store) BeginClose() { s.beginClose(ErrClosed) }

// Close ends the subscriptions and waits for the goroutines of the store. BeginClose must have been called before, and all operations have
// ended.
func (s *Store) Close() {
	s.cancelClosed(ErrClosed)
	s.Hub.close()
	s.work.Wait()
	s.unsubscribe()
}

// Bound ends an operation after the given time, and when the store closes.
func (s *Store) Bound(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, within)
	stop := context.AfterFunc(s.closed, cancel)
	return ctx, func() { stop(); cancel() }
}

// IsBucketName reports whether a bucket may have the name.
func IsBucketName(name string) bool {
	const most = 250 // bytes
	return subject.IsName(name, most)
}

// Maker is the function that makes a bucket, for errors.
const Maker = "kvlock.CreateBucket"

// CheckBucket returns an error for a text that is no name of a bucket.
func CheckBucket(bucket string) error {
	if IsBucketName(bucket) {
		return nil
	}
	return fmt.Errorf("kvlock: Bucket is %s: want 1 to 250 letters, digits, '-' and '_'", redact.Quote(bucket))
}

// StreamName returns the name of the stream behind a bucket.
func StreamName(bucket string) string { return "KV_" + bucket }

// SubjectPrefix returns the prefix of the subjects of a bucket's keys.
func SubjectPrefix(bucket string) string { return "$KV." + bucket + "." }

// CreateStream makes the stream of a bucket unless one of its name exists; an existing stream stays as it is. kind names it in errors.
// While a cluster is not ready it tries again, for up to jsapi.RetryWait.
func CreateStream(ctx context.Context, js jetstream.JetStream, kind, bucket string, sc jetstream.StreamConfig) error {
	if err := CheckBucket(bucket); err != nil {
		return err
	}
	err := jsapi.Retry(ctx, jsapi.RetryWait, func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, sc)
		return err
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("kvlock: create %s %q: %w", kind, bucket, err)
	}
	return nil
}

// CheckStream returns an error that names all settings of a bucket's stream with which entries would not be safe.
func CheckStream(bucket string, sc jetstream.StreamConfig) error {
	name := fmt.Sprintf("kvlock: bucket %q was not made with %s", bucket, Maker)
	return errors.Join(
		validate.If(!sc.AllowMsgTTL, "%s: AllowMsgTTL is off: claims could not expire; make the bucket again", name),
		validate.If(sc.SubjectDeleteMarkerTTL != 0,
			"%s: limit markers are on (%s): one can wipe an acknowledged renewal; turn SubjectDeleteMarkerTTL off",
			name, sc.SubjectDeleteMarkerTTL),
		validate.If(sc.MaxMsgsPerSubject != 1,
			"%s: history is %d: an expired value would uncover an older one; set MaxMsgsPerSubject to 1", name, sc.MaxMsgsPerSubject),
		validate.If(sc.DiscardNewPerSubject, "%s: DiscardNewPerSubject is on: no claim could be renewed; turn it off", name),
		validate.If(!sc.AllowDirect, "%s: AllowDirect is off: many keys could not be read in one round trip", name),
		validate.If(sc.PersistMode == jetstream.AsyncPersistMode,
			"%s: PersistMode is async: acknowledged claims are lost when the server is killed", name),
		CheckKept(name, sc))
}

// CheckKept returns an error unless the messages of a stream stay until their TTL and its writes are acknowledged. name begins each error.
func CheckKept(name string, sc jetstream.StreamConfig) error {
	return errors.Join(
		validate.If(sc.MaxAge != 0, "%s: MaxAge is %s: it would end claims and values before their TTL; set it to 0", name, sc.MaxAge),
		validate.If(sc.Discard != jetstream.DiscardNew && (sc.MaxBytes > 0 || sc.MaxMsgs > 0),
			"%s: Discard is old: when it is full it would evict entries in use; set it to new", name),
		validate.If(sc.Retention != jetstream.LimitsPolicy,
			"%s: Retention is %s: messages would go when a consumer saw them; set it to limits", name, sc.Retention),
		validate.If(sc.Mirror != nil, "%s: it is a mirror: its writes go elsewhere; name the origin", name),
		validate.If(sc.NoAck || sc.Sealed, "%s: NoAck or Sealed is on: no write would be acknowledged", name))
}

// Package kvlock publishes and explains these.
var (
	ErrClosed      = errors.New("kvlock: closed")
	ErrInvalidKey  = errors.New("kvlock: invalid key")
	ErrTooLarge    = errors.New("kvlock: value is too large")
	ErrUnavailable = errors.New("kvlock: JetStream unavailable")
)

// MarkRestored makes the generation of a bucket greater than all earlier ones. Two round trips.
func MarkRestored(ctx context.Context, js jetstream.JetStream, bucket string) error {
	look, cancel := context.WithTimeout(ctx, jsapi.RetryWait) // operators seldom set a deadline
	defer cancel()
	info, err := StreamInfo(look, js, bucket, StreamName(bucket), Maker)
	if err != nil {
		return err
	}
	cfg := info.Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	generation := max(generationOf(info)+1, uint64(max(0, time.Now().UnixNano())))
	cfg.Metadata[generationMetadata] = strconv.FormatUint(generation, 10)
	err = jsapi.Retry(ctx, jsapi.RetryWait, func(ctx context.Context) error {
		_, err := js.UpdateStream(ctx, cfg)
		return err
	})
	if err != nil {
		return fmt.Errorf("kvlock: mark bucket %q as restored: %w", bucket, err)
	}
	return nil
}
