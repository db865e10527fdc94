package kvlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/backoff"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/inbox"
)

// store is a bucket as one process sees it: its reads, its conditional writes and what it pushes.
type store struct {
	bucket     string
	stream     string // behind it
	instance   string // names this process in records, for people who look
	kind       State  // of its records: held, fenced, or 0 for slots
	js         jetstream.JetStream
	nc         *nats.Conn
	get        *directget.Getter
	acks       *inbox.Inbox // of what is written
	api        string       // the prefix of JetStream's API, with its final dot
	board      *board
	alive      *liveness // nil when there is none
	memory     *memory   // nil when nothing is kept
	clock      *clock
	log        *slog.Logger
	observe    func(context.Context, Event)
	opTimeout  time.Duration
	values     values
	maxMessage int64  // that the stream takes, in bytes; 0 when only the server bounds it
	prefix     string // of the subjects of keys, as read
	put        string // of the subjects of keys, as written: differs where JetStream has an API prefix of its own

	counts  counters
	epoch   atomic.Uint64 // of tokens: when the stream was created
	highest atomic.Uint64 // the highest revision that was acknowledged; a lower one is of a stream that was made anew
	ending  lifetime      // ends when closing begins: nothing is waited for or computed any more
	ended   lifetime      // ends when all work has ended: nothing is sent any more
}

// lifetime is a context with its end.
type lifetime struct {
	context.Context //nolint:containedctx // it is the life of the store, not of a call

	end context.CancelCauseFunc
}

func newLifetime() lifetime {
	ctx, end := context.WithCancelCause(context.Background()) //nolint:forbidigo // begins with the store, ends with close
	return lifetime{ctx, end}
}

// storeConfig says what to bind to, and how.
type storeConfig struct {
	bucket    string
	instance  string
	kind      State
	log       *slog.Logger
	observe   func(context.Context, Event)
	opTimeout time.Duration
	values    values        // unused where records have none
	probe     time.Duration // see Config.ProbeInterval
}

// openStore binds to the bucket and checks the settings of its stream. close ends it. Two round trips.
func openStore(ctx context.Context, js jetstream.JetStream, cfg storeConfig) (*store, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.opTimeout)
	defer cancel()
	clock, sent := newClock(), time.Now()
	info, err := streamInfo(ctx, js, cfg.bucket, streamName(cfg.bucket))
	if err != nil {
		return nil, err
	}
	clock.asked(sent, time.Now(), info.TimeStamp)
	if err := checkOverflow(ctx, js, cfg.values.overflow); err != nil {
		return nil, err
	}
	if err := checkStream(cfg.bucket, info.Config); err != nil {
		return nil, err
	}

	api := apiPrefix(js.Options())
	s := &store{
		bucket: cfg.bucket, stream: streamName(cfg.bucket), instance: cfg.instance, kind: cfg.kind, js: js, nc: js.Conn(),
		log: cfg.log.With("bucket", cfg.bucket), api: api, clock: clock, observe: cfg.observe, opTimeout: cfg.opTimeout, values: cfg.values,
		maxMessage: int64(max(info.Config.MaxMsgSize, 0)),
		prefix:     subjectPrefix(cfg.bucket), put: subjectPrefix(cfg.bucket),
		ending: newLifetime(), ended: newLifetime(),
	}
	s.epoch.Store(epochOf(info))
	if api != jetstream.DefaultAPIPrefix {
		s.put = api + s.put
	}
	if err := s.subscribe(cfg.probe); err != nil {
		return nil, errors.Join(fmt.Errorf("kvlock: bind bucket %q: %w", cfg.bucket, err), s.unsubscribe())
	}
	s.board = newBoard(s, info.Config.RePublish)
	return s, nil
}

// subscribe subscribes to answers, and to probes of whether this process is there.
func (s *store) subscribe(probe time.Duration) (err error) {
	if s.get, err = directget.New(s.nc, s.api, s.stream); err != nil {
		return err
	}
	if s.acks, err = inbox.New(s.nc); err != nil {
		return err
	}
	s.alive, err = newLiveness(s, probe)
	return err
}

// unsubscribe ends what subscribe began, as far as that came.
func (s *store) unsubscribe() error {
	errs := []error{s.alive.close()}
	if s.acks != nil {
		errs = append(errs, s.acks.Close())
	}
	if s.get != nil {
		errs = append(errs, s.get.Close())
	}
	return errors.Join(errs...)
}

// streamInfo asks until somebody answers: a cluster does not while it elects a leader, as after the stream was made.
func streamInfo(ctx context.Context, js jetstream.JetStream, bucket, name string) (*jetstream.StreamInfo, error) {
	for wait := minSettleWait; ; wait = min(2*wait, maxSettleWait) {
		try, cancel := context.WithTimeout(ctx, tryTimeout/2)
		stream, err := js.Stream(try, name)
		cancel()
		switch {
		case err == nil:
			return stream.CachedInfo(), nil
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrInvalidStreamName),
			errors.Is(err, nats.ErrConnectionClosed):
			return nil, fmt.Errorf("kvlock: bind bucket %q: %w", bucket, err)
		case !backoff.Pause(ctx, wait):
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

// close ends everything that was sent or waited for. ending has ended before, and all work with it.
func (s *store) close() {
	s.ended.end(ErrClosed)
	s.memory.close()
	s.board.close()
	if err := s.unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		s.log.Warn("kvlock: unsubscribe", "error", err)
	}
}

// bound limits an operation to the store's time-out, and ends it when the store closes.
func (s *store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.boundBy(ctx, time.Now().Add(s.opTimeout))
}

// boundBy is bound for what has begun before.
func (s *store) boundBy(ctx context.Context, by time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(ctx, by)
	stop := context.AfterFunc(s.ended, cancel)
	return ctx, func() { stop(); cancel() }
}
