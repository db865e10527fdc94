package kvlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/limit"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

const (
	// MaxPermits is the greatest SemaphoreConfig.Permits, RateLimiterConfig.Rate and Burst.
	MaxPermits = 1_000_000

	// longestPer is the longest RateLimiterConfig.Per.
	longestPer = 31 * 24 * time.Hour

	// maxWaiting is how many calls may wait in one Semaphore or RateLimiter, half of them for one key.
	maxWaiting = 100_000

	// limitPrefix begins the keys of the records, which listings of locks and results leave out.
	limitPrefix = kv.LimitPrefix
)

var limitName = regexp.MustCompile(`^[-_A-Za-z0-9]{1,64}$`)

// limits is the common part of a [Semaphore] and a [RateLimiter].
type limits struct {
	spec     limit.Spec
	set      *limit.Set
	records  *kvrecord.Client
	sequence atomic.Uint64 // of the calls

	closing context.Context //nolint:containedctx // ends with Close
	end     context.CancelCauseFunc
	calls   sync.RWMutex // read-locked by each call while it uses the set

	mu   sync.Mutex
	held map[*Permit]struct{}
}

// limitsConfig is the common part of their configurations.
type limitsConfig struct {
	bucket    string
	logger    *slog.Logger
	opTimeout time.Duration
	ttl       time.Duration
}

// openLimits binds to the bucket and checks the settings of its stream.
func openLimits(ctx context.Context, js jetstream.JetStream, cfg limitsConfig, spec limit.Spec, wrong ...error) (*limits, error) {
	base := kv.Config{Bucket: cfg.bucket, Logger: cfg.logger, OpTimeout: cfg.opTimeout}.WithDefaults()
	if !limitName.MatchString(spec.Name) {
		wrong = append(wrong, fmt.Errorf("kvlock: Name is %q: want 1 to 64 letters, digits, '-' and '_'", spec.Name))
	}
	if err := errors.Join(append(wrong, base.Validate())...); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, base.OpTimeout)
	defer cancel()
	info, err := kv.StreamInfo(ctx, js, base.Bucket, kv.StreamName(base.Bucket))
	if err != nil {
		return nil, err
	}
	if err := kv.CheckStream(base.Bucket, info.Config); err != nil {
		return nil, err
	}
	records, err := kvrecord.New(kvrecord.Config{JetStream: js, Try: min(kv.SendTimeout, base.OpTimeout), Timeout: base.OpTimeout})
	if err != nil {
		return nil, fmt.Errorf("kvlock: bind bucket %q: %w", base.Bucket, err)
	}
	closing, end := context.WithCancelCause(context.Background()) //nolint:forbidigo // begins with the limits
	log := base.Logger.With("bucket", base.Bucket, "limit", spec.Name)
	return &limits{spec: spec, records: records, closing: closing, end: end, held: map[*Permit]struct{}{}, set: limit.New(limit.Config{
		Conn: js.Conn(), Records: records.Bucket(base.Bucket), Prefix: limitPrefix, Lease: cmp.Or(cfg.ttl, defaultTTL),
		Request: base.OpTimeout, Waiting: maxWaiting,
		Failed: func(err error) {
			log.WarnContext(closing, "kvlock: a request for a limit failed, trying again", "error", err)
		},
	})}, nil
}

// Close ends all waits and the contexts of all permits with ErrClosed, gives the permits back, and returns when that is done,
// or after twice OpTimeout. Calling it again does nothing.
func (l *limits) Close() {
	if l.closing.Err() != nil {
		return
	}
	l.end(ErrClosed)
	l.calls.Lock() // when all calls have left
	defer l.calls.Unlock()
	l.mu.Lock()
	held := slices.Collect(maps.Keys(l.held))
	l.mu.Unlock()
	for _, p := range held {
		p.end(ErrClosed)
	}
	l.set.Close()
	l.records.Close()
}

// call calls use with a context that also ends with Close.
func (l *limits) call(ctx context.Context, key string, use func(context.Context) error) error {
	l.calls.RLock()
	defer l.calls.RUnlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.closing, func() { cancel(ErrClosed) })()
	err := context.Cause(l.closing)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = use(ctx)
	}
	switch {
	case err == nil:
		return nil
	case l.closing.Err() != nil:
		err = ErrClosed
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.As(err, new(*limit.RecordError)), errors.As(err, new(*limit.FullError)):
	default:
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("kvlock: limit %q of %q: %w", l.spec.Name, key, err)
}

func (l *limits) rule(key string) limit.Rule { return limit.Rule{Key: key, Spec: l.spec} }

// enter waits for a permit or a start of key. lost is called when the permit is no longer held.
func (l *limits) enter(ctx context.Context, key string, lost func(error)) (*limit.Pass, error) {
	return l.set.Enter(ctx, limit.Entry{Lost: lost, Rules: []limit.Rule{l.rule(key)}, Seat: seat{}, Sequence: l.sequence.Add(1)})
}

// seat is the slot of a caller of limits: it keeps it.
type seat struct{}

// Give reports whether the slot was left: it never is.
func (seat) Give() bool { return false }

// Take reports whether the caller has its slot: it always has.
func (seat) Take() bool { return true }

// between returns an error unless n is from 1 to MaxPermits.
func between(field string, n int) error {
	if n >= 1 && n <= MaxPermits {
		return nil
	}
	return fmt.Errorf("kvlock: %s is %d: want 1 to %d", field, n, MaxPermits)
}

// RateLimiterConfig configures a [RateLimiter]. Bucket, Name, Per and Rate are required.
type RateLimiterConfig struct {
	// Bucket is the KV bucket that keeps the rates: see [CreateBucket] and [StreamConfig].
	Bucket string

	// Burst is how many calls there may be at once after a pause: 1 to 1,000,000. Defaults to 1.
	Burst int

	// Logger gets requests that failed and are repeated. Defaults to slog.Default().
	Logger *slog.Logger

	// Name identifies the limit in its bucket: letters, digits, '-' and '_', at most 64. Those of one name should not
	// differ in anything else, since each applies its own settings.
	Name string

	// OpTimeout bounds each request, and how long Close waits for the server. Defaults to 2 seconds.
	OpTimeout time.Duration

	// Per is the time in which Rate calls may be made: at least Rate microseconds, at most 31 days.
	Per time.Duration

	// Rate is how many calls of a key may be made in Per, by all processes: 1 to 1,000,000.
	Rate int
}

// RateLimiter spaces calls out: over all processes of its bucket, no period of RateLimiterConfig.Per has more than Rate plus
// Burst of a key, evenly spaced (the generic cell rate algorithm). When the clocks of machines differ, the calls that are due
// in the difference come in addition. Make one with [NewRateLimiter] for each bucket, name and process; it is safe for
// concurrent use.
type RateLimiter struct{ *limits }

// NewRateLimiter binds to the bucket and checks the settings of its stream. Close ends it. It returns
// jetstream.ErrStreamNotFound when there is no such bucket, and ErrUnavailable when no server answered within OpTimeout. One
// round trip.
func NewRateLimiter(ctx context.Context, js jetstream.JetStream, cfg RateLimiterConfig) (*RateLimiter, error) {
	spec := limit.Spec{Name: cfg.Name, Burst: cmp.Or(cfg.Burst, 1), Per: cfg.Per, Rate: cfg.Rate}
	var per error
	if cfg.Per < time.Duration(cfg.Rate)*time.Microsecond || cfg.Per > longestPer {
		per = fmt.Errorf("kvlock: Per is %s: want at least %d microseconds, those of Rate, and at most %s", cfg.Per, cfg.Rate, longestPer)
	}
	base := limitsConfig{bucket: cfg.Bucket, logger: cfg.Logger, opTimeout: cfg.OpTimeout}
	l, err := openLimits(ctx, js, base, spec, between("Rate", cfg.Rate), between("Burst", spec.Burst), per)
	if err != nil {
		return nil, err
	}
	return &RateLimiter{l}, nil
}

// Wait waits until a call of key may be made: any text, "" if there is one key only. Calls of a process are made in the order
// in which they came. It returns the cause of its context when that ends first, and waits through outages. One round trip,
// shared by all calls that are due within ten milliseconds.
func (r *RateLimiter) Wait(ctx context.Context, key string) error {
	return r.call(ctx, key, func(ctx context.Context) error {
		pass, err := r.enter(ctx, key, func(error) {})
		pass.Leave()
		return err
	})
}

// Reserve takes the next call of key if it may be made within the given time, and returns when: the caller waits until then.
// A call that is reserved and not made is lost to all. It reports false, with when it may be made, if that is later; nothing
// is taken then. Calls that wait in Wait come after it. Two round trips, two more for each other process that takes one at the
// same time.
func (r *RateLimiter) Reserve(ctx context.Context, key string, within time.Duration) (at time.Time, ok bool, err error) {
	err = r.call(ctx, key, func(ctx context.Context) (err error) {
		at, ok, err = r.set.Reserve(ctx, r.rule(key), within)
		return err
	})
	return at, ok, err
}

// SemaphoreConfig configures a [Semaphore]. Bucket, Name and Permits are required.
type SemaphoreConfig struct {
	// Bucket is the KV bucket that keeps the permits: see [CreateBucket] and [StreamConfig].
	Bucket string

	// Logger gets requests that failed and are repeated. Defaults to slog.Default().
	Logger *slog.Logger

	// Name identifies the semaphore in its bucket: letters, digits, '-' and '_', at most 64. Those of one name should not
	// differ in anything else, since each applies its own settings.
	Name string

	// OpTimeout bounds each request, and how long Close waits for the server. Defaults to 2 seconds.
	OpTimeout time.Duration

	// Permits is how many holders a key may have at once, in all processes: 1 to 1,000,000.
	Permits int

	// TTL is for how long the permits of a process stay taken when it dies: others have them within twice that. One second
	// to a day. Defaults to 30 seconds.
	TTL time.Duration
}

// Semaphore gives out permits: over all processes of its bucket, no more than SemaphoreConfig.Permits of a key are held at
// once. Make one with [NewSemaphore] for each bucket, name and process; it is safe for concurrent use.
//
// Waiting processes have permits in turn: one that has its share leaves those that become free to others that wait. In a
// process, calls have them in the order in which they came. One write takes the permits for all calls that wait in a
// process, and a permit passes from one call to the next without a write while no other process waits.
//
// One lease in each process is for all its permits, and is renewed three times in its TTL. A [Permit]'s context ends before
// another process has the permit. There is no token: of several holders none is the latest, so that no system could refuse
// the earlier ones. Work that needs a token takes a lock.
type Semaphore struct{ *limits }

// NewSemaphore binds to the bucket and checks that its stream has the settings that permits are safe with. Close ends it. It
// returns jetstream.ErrStreamNotFound when there is no such bucket, and ErrUnavailable when no server answered within
// OpTimeout. One round trip.
func NewSemaphore(ctx context.Context, js jetstream.JetStream, cfg SemaphoreConfig) (*Semaphore, error) {
	var ttl error
	if cfg.TTL != 0 && (cfg.TTL < time.Second || cfg.TTL > 24*time.Hour) {
		ttl = fmt.Errorf("kvlock: TTL is %s: want a second to a day", cfg.TTL)
	}
	base := limitsConfig{bucket: cfg.Bucket, logger: cfg.Logger, opTimeout: cfg.OpTimeout, ttl: cfg.TTL}
	l, err := openLimits(ctx, js, base, limit.Spec{Name: cfg.Name, Concurrency: cfg.Permits}, between("Permits", cfg.Permits), ttl)
	if err != nil {
		return nil, err
	}
	return &Semaphore{l}, nil
}

// Permit is the right to be one of the holders of a key, until [Permit.Release] or until it is lost.
type Permit struct {
	ctx    context.Context //nolint:containedctx // it is the life of the permit, not of a call
	cancel context.CancelCauseFunc
	of     *limits
	pass   *limit.Pass
	ending sync.Once
	mu     sync.Mutex // held while ctx is ended, and while pass is asked
}

// Acquire waits for a permit of key, any text: "" if there is one key only. It waits until its context ends, whose cause it
// then returns, also through outages. One round trip for a free permit, two for the first one of a Semaphore; none when the
// process has one to spare.
func (s *Semaphore) Acquire(ctx context.Context, key string) (*Permit, error) {
	p := &Permit{of: s.limits}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	err := s.call(ctx, key, func(ctx context.Context) (err error) {
		lost := func(err error) { p.cancel(fmt.Errorf("%w: a permit of %q: %w", ErrLost, key, err)) }
		if p.pass, err = s.enter(ctx, key, lost); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held[p] = struct{}{}
		return nil
	})
	if err != nil {
		p.cancel(err)
		return nil, err
	}
	return p, nil
}

// Context ends when the permit does: with the cause [ErrReleased] when it is released, and [ErrLost] when the lease of this
// process's permits was not renewed in time, or was ended by another process. It has the values of the context that the
// permit was acquired with, and does not end with that one. Done and Err are on time also right after a pause of the process.
func (p *Permit) Context() context.Context {
	return kv.DeadlineContext(p.ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ctx.Err() == nil && !p.pass.Live() {
			p.cancel(fmt.Errorf("%w: the lease of this process's permits has ended", ErrLost))
		}
	})
}

// Release gives the permit up, after its context has ended. It does not wait for the server: if that does not hear of it,
// the permit is free when its TTL has passed. Calling it again does nothing.
func (p *Permit) Release() { p.end(ErrReleased) }

func (p *Permit) end(cause error) {
	p.ending.Do(func() {
		p.mu.Lock()
		p.cancel(cause)
		p.mu.Unlock()
		p.of.mu.Lock()
		delete(p.of.held, p)
		p.of.mu.Unlock()
		p.pass.Leave()
	})
}

// Do acquires a permit of key, runs fn, and releases the permit, also when fn panics. The context of fn ends with ctx and
// with the permit. Do returns the error of fn, and ErrLost with it when the permit was lost before fn returned.
func (s *Semaphore) Do(ctx context.Context, key string, fn func(ctx context.Context) error) (err error) {
	p, err := s.Acquire(ctx, key)
	if err != nil {
		return err
	}
	defer p.Release()
	held, stop := whileHeld(ctx, p.Context())
	defer stop()
	defer func() {
		if p.Context().Err() != nil {
			err = errors.Join(err, context.Cause(p.ctx))
		}
	}()
	return fn(held)
}

// whileHeld returns a context that ends with ctx and with that of a lease or permit, on time also right after a pause.
func whileHeld(ctx, leased context.Context) (held context.Context, stop func()) {
	held, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(leased, func() { cancel(context.Cause(leased)) })
	return kv.DeadlineContext(held, func() {
			if leased.Err() != nil {
				cancel(context.Cause(leased))
			}
		}), func() {
			unlink()
			cancel(nil)
		}
}
