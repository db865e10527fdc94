package kvlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
)

const (
	defaultClaimTTL  = time.Minute
	defaultOpTimeout = 2 * time.Second
	defaultResultTTL = 7 * 24 * time.Hour

	// maxTTL is the longest TTL: far below where seconds would overflow, far above what anybody keeps.
	maxTTL = 10 * 365 * 24 * time.Hour
)

// Config says how a [Flight] works.
type Config struct {
	// Bucket is the KV bucket, made from [StreamConfig]. Required.
	Bucket string

	// ClaimTTL is how long a claim holds without a renewal, in whole seconds, at least one. It is how long waiters
	// wait for an owner that died. Defaults to one minute.
	ClaimTTL time.Duration

	// Instance names this process in slots, for people who look. Defaults to host name, process id and a random part.
	Instance string

	// Logger gets what nobody else is told: corrupt records, and renewals that failed. Defaults to slog.Default().
	Logger *slog.Logger

	// OpTimeout bounds each operation beside its context, so that an unreachable server costs a caller no more than
	// this. It does not bound Wait, Watch or the function of Do. Defaults to 2 seconds.
	OpTimeout time.Duration

	// ResultTTL is how long a result is kept when Complete is not told otherwise, in whole seconds, at least one.
	// Defaults to 7 days.
	ResultTTL time.Duration
}

func (cfg Config) withDefaults() Config {
	if cfg.ClaimTTL == 0 {
		cfg.ClaimTTL = defaultClaimTTL
	}
	if cfg.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		cfg.Instance = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), nuid.Next()[16:])
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.OpTimeout == 0 {
		cfg.OpTimeout = defaultOpTimeout
	}
	if cfg.ResultTTL == 0 {
		cfg.ResultTTL = defaultResultTTL
	}
	return cfg
}

var bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func (cfg Config) validate() error {
	var errs []error
	if !bucketName.MatchString(cfg.Bucket) {
		errs = append(errs, fmt.Errorf("kvlock: Bucket is %q: want letters, digits, '-' and '_'", cfg.Bucket))
	}
	if err := checkTTL(cfg.ClaimTTL); err != nil {
		errs = append(errs, fmt.Errorf("kvlock: ClaimTTL: %w", err))
	}
	if err := checkTTL(cfg.ResultTTL); err != nil {
		errs = append(errs, fmt.Errorf("kvlock: ResultTTL: %w", err))
	}
	if cfg.OpTimeout < 0 {
		errs = append(errs, fmt.Errorf("kvlock: OpTimeout is %s: want a positive duration", cfg.OpTimeout))
	}
	if len(cfg.Instance) > maxInstanceBytes {
		errs = append(errs, fmt.Errorf("kvlock: Instance has %d bytes: the limit is %d", len(cfg.Instance), maxInstanceBytes))
	}
	return errors.Join(errs...)
}

// checkTTL refuses what the server would round: it counts whole seconds and cuts fractions off.
func checkTTL(ttl time.Duration) error {
	if ttl < time.Second || ttl > maxTTL || ttl%time.Second != 0 {
		return fmt.Errorf("%s is not a TTL: want whole seconds, from 1s to %s", ttl, maxTTL)
	}
	return nil
}

// Flight computes each key once at a time, across goroutines, processes and machines, and keeps the results.
// Make one for each bucket and process with [NewFlight]; it is safe for concurrent use.
type Flight struct {
	cfg    Config
	js     jetstream.JetStream
	nc     *nats.Conn
	get    *directget.Getter
	board  *board
	log    *slog.Logger
	prefix string // of the subjects of keys, as read
	put    string // of the subjects of keys, as written: differs where JetStream has an API prefix of its own

	epoch   atomic.Uint64 // of tokens: when the stream was created
	highest atomic.Uint64 // the highest revision that was acknowledged; a lower one is of a stream that was made anew
	ending  lifetime      // ends when Close begins: nothing is waited for or computed any more
	ended   lifetime      // ends when all computations have given their claims back: nothing is sent any more
	closing sync.Once

	mu    sync.Mutex
	local map[string]*call
	work  sync.WaitGroup // computations of Do
}

// lifetime is a context with its end.
type lifetime struct {
	context.Context //nolint:containedctx // it is the life of the Flight, not of a call

	end context.CancelCauseFunc
}

func newLifetime() lifetime {
	ctx, end := context.WithCancelCause(context.Background()) //nolint:forbidigo // begins with the Flight, ends with Close
	return lifetime{ctx, end}
}

// NewFlight binds to the bucket and checks that its stream has the settings that Flight is safe with. Close ends it.
// It returns jetstream.ErrStreamNotFound when there is no such bucket, and ErrUnavailable when nobody answered within
// OpTimeout. One round trip.
func NewFlight(ctx context.Context, js jetstream.JetStream, cfg Config) (*Flight, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.OpTimeout)
	defer cancel()
	info, err := streamInfo(ctx, js, cfg.Bucket)
	if err != nil {
		return nil, err
	}
	if err := checkStream(cfg.Bucket, info.Config); err != nil {
		return nil, err
	}

	api := apiPrefix(js.Options())
	f := &Flight{
		cfg: cfg, js: js, nc: js.Conn(), log: cfg.Logger.With("bucket", cfg.Bucket),
		prefix: subjectPrefix(cfg.Bucket), put: subjectPrefix(cfg.Bucket),
		ending: newLifetime(), ended: newLifetime(), local: map[string]*call{},
	}
	f.epoch.Store(epochOf(info))
	if api != jetstream.DefaultAPIPrefix {
		f.put = api + f.put
	}
	if f.get, err = directget.New(f.nc, api, streamName(cfg.Bucket)); err != nil {
		return nil, fmt.Errorf("kvlock: bind bucket %q: %w", cfg.Bucket, err)
	}
	f.board = newBoard(f, info.Config.RePublish)
	return f, nil
}

// streamInfo asks until somebody answers: a cluster does not while it elects a leader, as after the stream was made.
func streamInfo(ctx context.Context, js jetstream.JetStream, bucket string) (*jetstream.StreamInfo, error) {
	for wait := minSettleWait; ; wait = min(2*wait, maxSettleWait) {
		try, cancel := context.WithTimeout(ctx, tryTimeout/2)
		stream, err := js.Stream(try, streamName(bucket))
		cancel()
		switch {
		case err == nil:
			return stream.CachedInfo(), nil
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrInvalidStreamName),
			errors.Is(err, nats.ErrConnectionClosed):
			return nil, fmt.Errorf("kvlock: bind bucket %q: %w", bucket, err)
		case !pause(ctx, wait):
			return nil, fmt.Errorf("kvlock: bind bucket %q: %w: %w", bucket, ErrUnavailable, err)
		}
	}
}

func apiPrefix(o jetstream.JetStreamOptions) string {
	switch {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	default:
		return jetstream.DefaultAPIPrefix
	}
}

// Close ends all waits with ErrClosed, cancels the computations of Do, and returns when they have given their claims
// back. Claims from Begin and Resume stay until they expire: whoever holds one completes or fails it before.
// Calling it again does nothing.
func (f *Flight) Close() { f.closing.Do(f.close) }

func (f *Flight) close() {
	f.mu.Lock() // no computation is being added
	f.ending.end(ErrClosed)
	f.mu.Unlock()
	f.work.Wait()
	f.ended.end(ErrClosed)
	f.board.close()
	if err := f.get.Close(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		f.log.Warn("kvlock: unsubscribe", "error", err)
	}
}

// bound limits an operation to OpTimeout, and ends it when the Flight closes.
func (f *Flight) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.OpTimeout)
	stop := context.AfterFunc(f.ended, cancel)
	return ctx, func() { stop(); cancel() }
}
