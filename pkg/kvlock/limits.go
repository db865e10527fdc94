package kvlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/limit"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

const (
	// MaxPermits is the greatest SemaphoreConfig.Permits, RateLimiterConfig.Rate and Burst.
	MaxPermits = 1_000_000

	// longestPer is the longest RateLimiterConfig.Per.
	longestPer = 31 * 24 * time.Hour

	// maxWaiting is the largest number of calls that may wait in one Semaphore or RateLimiter, half of them for one key.
	maxWaiting = 100_000

	// limitPrefix begins the keys of the records, which listings of locks and results leave out.
	limitPrefix = "_kv_limits."
)

// limits is the common part of a [Semaphore] and a [RateLimiter].
type limits struct {
	spec     limit.Spec
	set      *limit.Set
	records  *kvrecord.Client
	sequence atomic.Uint64 // of the calls

	closing context.Context
	end     context.CancelCauseFunc
	calls   sync.RWMutex // read-locked by each call while it uses the set

	mu   sync.Mutex
	held map[*Permit]struct{}
}

// openLimits binds to the bucket and checks the settings of its stream. ttl is that of the permits of a process.
func openLimits(
	ctx context.Context, js jetstream.JetStream, base kv.Config, ttl time.Duration, spec limit.Spec, wrong ...error,
) (*limits, error) {
	base = base.WithDefaults()
	if !subject.IsName(spec.Name, subject.MaxName) {
		wrong = append(wrong, fmt.Errorf("kvlock: Name is %s: want 1 to 64 letters, digits, '-' and '_'", redact.Quote(spec.Name)))
	}
	if err := errors.Join(append(wrong, base.Validate())...); err != nil {
		return nil, err
	}
	records, err := openRecords(ctx, js, base)
	if err != nil {
		return nil, err
	}
	closing, end := context.WithCancelCause(context.Background()) //nolint:forbidigo // begins with the limits
	log := base.Logger.With("bucket", base.Bucket, "limit", spec.Name)
	return &limits{spec: spec, records: records, closing: closing, end: end, held: map[*Permit]struct{}{}, set: limit.New(limit.Config{
		Conn: js.Conn(), Records: records.Bucket(base.Bucket), Prefix: limitPrefix, Lease: ttl,
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

// call calls use with a context that ends with ctx, and with Close.
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
	return fmt.Errorf("kvlock: limit %q of %s: %w", l.spec.Name, redact.Quote(key), err)
}

// enter waits for a permit or a start of key. lost is called when the permit is no longer held.
func (l *limits) enter(ctx context.Context, key string, lost func(error)) (*limit.Permit, error) {
	rules := []limit.Rule{{Key: key, Spec: l.spec}}
	return l.set.Enter(ctx, limit.Entry{Lost: lost, Rules: rules, Sequence: l.sequence.Add(1)})
}

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

	// Burst is the number of calls that may be made at once after a pause: 1 to 1,000,000, and no more than are due within 50 years.
	// Defaults to 1.
	Burst int

	// Logger gets requests that failed and are repeated. Defaults to slog.Default().
	Logger *slog.Logger

	// Name identifies the limit in its bucket: letters, digits, '-' and '_', at most 64. Limiters with one name should have the same
	// settings, since each applies its own.
	Name string

	// OpTimeout bounds each request, and the time for which Close waits for the server. Defaults to 2 seconds.
	OpTimeout time.Duration

	// Per is the time in which Rate calls may be made: at least Rate microseconds, at most 31 days.
	Per time.Duration

	// Rate is the number of calls of a key that all processes may make in Per: 1 to 1,000,000.
	Rate int
}

// RateLimiter spaces calls out: over all processes of its bucket, no period of RateLimiterConfig.Per has more than Rate plus Burst calls
// of a key, evenly spaced (the generic cell rate algorithm). When the clocks of machines differ, the calls that are due within the
// difference come in addition. Make one with [NewRateLimiter] for each bucket, name and process; it is safe for concurrent use.
type RateLimiter struct{ *limits }

// NewRateLimiter binds to the bucket and checks the settings of its stream. Close ends it. It returns jetstream.ErrStreamNotFound when the
// bucket does not exist, and ErrUnavailable when no server answered within OpTimeout. One round trip.
func NewRateLimiter(ctx context.Context, js jetstream.JetStream, cfg RateLimiterConfig) (*RateLimiter, error) {
	spec := limit.Spec{Name: cfg.Name, Burst: cmp.Or(cfg.Burst, 1), Per: cfg.Per, Rate: cfg.Rate}
	var per error
	if cfg.Per < time.Duration(cfg.Rate)*time.Microsecond || cfg.Per > longestPer {
		per = fmt.Errorf("kvlock: Per is %s: want at least %d microseconds, those of Rate, and at most %s", cfg.Per, cfg.Rate, longestPer)
	}
	base := kv.Config{Bucket: cfg.Bucket, Logger: cfg.Logger, OpTimeout: cfg.OpTimeout}
	l, err := openLimits(ctx, js, base, defaultTTL, spec, between("Rate", cfg.Rate), between("Burst", spec.Burst), per)
	if err != nil {
		return nil, err
	}
	return &RateLimiter{l}, nil
}

// Wait waits until a call of key may be made. A key is any text, "" if there is one key only. Calls of a process are made in the order in
// which they came. Wait returns the cause of its context when the context ends first, and waits through outages. One round trip, shared by
// all calls that are due within ten milliseconds.
func (r *RateLimiter) Wait(ctx context.Context, key string) error {
	return r.call(ctx, key, func(ctx context.Context) error {
		permit, err := r.enter(ctx, key, func(error) {})
		permit.Leave()
		return err
	})
}

// SemaphoreConfig configures a [Semaphore]. Bucket, Name and Permits are required.
type SemaphoreConfig struct {
	// Bucket is the KV bucket that keeps the permits: see [CreateBucket] and [StreamConfig].
	Bucket string

	// Logger gets requests that failed and are repeated. Defaults to slog.Default().
	Logger *slog.Logger

	// Name identifies the semaphore in its bucket: letters, digits, '-' and '_', at most 64. Semaphores with one name should have the same
	// settings, since each applies its own.
	Name string

	// OpTimeout bounds each request, and the time for which Close waits for the server. Defaults to 2 seconds.
	OpTimeout time.Duration

	// Permits is the largest number of holders of a key at once, in all processes: 1 to 1,000,000.
	Permits int

	// TTL is the time for which the permits of a process stay taken when it dies: others get them within twice that time. One second to a
	// day. Defaults to 30 seconds.
	TTL time.Duration
}

// Semaphore gives out permits: over all processes of its bucket, no more than SemaphoreConfig.Permits of a key are held at
// once. Make one with [NewSemaphore] for each bucket, name and process; it is safe for concurrent use.
//
// Waiting processes get permits in turn: a process that has its share leaves free permits to other waiting processes. In a process, calls
// get permits in the order in which they came. One write takes the permits for all waiting calls of a process, and a permit passes from
// one call to the next without a write while no other process waits.
//
// Each process has one lease for all its permits, and renews it three times in its TTL. A [Permit]'s context ends before another process
// has the permit. Permits have no token: of several holders none is the latest, so no system could refuse the earlier ones. Work that
// needs a token takes a lock.
type Semaphore struct{ *limits }

// NewSemaphore binds to the bucket and checks that its stream has settings with which permits are safe. Close ends it. It returns
// jetstream.ErrStreamNotFound when the bucket does not exist, and ErrUnavailable when no server answered within OpTimeout. One round trip.
func NewSemaphore(ctx context.Context, js jetstream.JetStream, cfg SemaphoreConfig) (*Semaphore, error) {
	var ttl error
	if cfg.TTL != 0 && (cfg.TTL < time.Second || cfg.TTL > 24*time.Hour) {
		ttl = fmt.Errorf("kvlock: TTL is %s: want a second to a day", cfg.TTL)
	}
	base := kv.Config{Bucket: cfg.Bucket, Logger: cfg.Logger, OpTimeout: cfg.OpTimeout}
	spec := limit.Spec{Name: cfg.Name, Concurrency: cfg.Permits}
	l, err := openLimits(ctx, js, base, cmp.Or(cfg.TTL, defaultTTL), spec, between("Permits", cfg.Permits), ttl)
	if err != nil {
		return nil, err
	}
	return &Semaphore{l}, nil
}

// Permit is the right to be one of the holders of a key, until [Permit.Release] or until it is lost.
type Permit struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	of     *limits
	permit *limit.Permit
	ending sync.Once
	mu     sync.Mutex // held to end ctx, and to call permit
}

// Acquire waits for a permit of key. A key is any text, "" if there is one key only. When its context ends, Acquire returns the cause; it
// waits through outages. One round trip for a free permit, two for the first permit of a Semaphore; none when the process has one to
// spare.
func (s *Semaphore) Acquire(ctx context.Context, key string) (*Permit, error) {
	p := &Permit{of: s.limits}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	err := s.call(ctx, key, func(ctx context.Context) (err error) {
		lost := func(err error) { p.cancel(fmt.Errorf("%w: a permit of %s: %w", ErrLost, redact.Quote(key), err)) }
		if p.permit, err = s.enter(ctx, key, lost); err != nil {
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

// Context returns a context that ends with the permit: with the cause [ErrReleased] on release, and [ErrLost] when the lease of this
// process's permits was not renewed in time, or was ended by another process. It has the values of the context of Acquire, but does not
// end with that context. Done and Err are on time even right after a pause of the process.
func (p *Permit) Context() context.Context {
	return kv.DeadlineContext(p.ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ctx.Err() == nil && !p.permit.Live() {
			p.cancel(fmt.Errorf("%w: the lease of this process's permits has ended", ErrLost))
		}
	})
}

// Release ends the permit's context, and gives the permit up. It does not wait for the server: if the server does not hear of it, the
// permit is free when its TTL has passed. Calling it again does nothing.
func (p *Permit) Release() { p.end(ErrReleased) }

func (p *Permit) end(cause error) {
	p.ending.Do(func() {
		p.mu.Lock()
		p.cancel(cause)
		p.mu.Unlock()
		p.of.mu.Lock()
		delete(p.of.held, p)
		p.of.mu.Unlock()
		p.permit.Leave()
	})
}

// Do acquires a permit of key, runs fn, and releases the permit, even if fn panics. The context of fn ends with ctx and with the permit.
// Do returns the error of fn, and ErrLost with it when the permit was lost before fn returned.
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

// whileHeld returns a context that ends with ctx and with leased, the context of a lease or permit, on time even right after a pause.
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

// LimitState is the record of one key of a limit: a [Semaphore], a [RateLimiter], or a limit of a worker. Held has the number of permits
// that each process holds, Queue the processes that want some, the first in line first, and Next the time of the next start, if the limit
// has a rate. Name is the name of the limit, and Key the hash of the key.
type LimitState = limit.State

// ListLimits returns no more than most records of a bucket's limits, for display, and the number of keys. A key has a record while
// permits or starts count under it. Five round trips, and one more for each 512 keys.
func ListLimits(ctx context.Context, js jetstream.JetStream, bucket string, most int) (all []LimitState, total int, err error) {
	records, err := kvrecord.New(kvrecord.Config{JetStream: js, Try: time.Second, Timeout: 2 * time.Second})
	if err != nil {
		return nil, 0, err
	}
	defer records.Close()
	for _, prefix := range []string{limit.DefaultPrefix, limitPrefix} {
		found, n, err := limit.Survey(ctx, records.Bucket(bucket), prefix, max(0, most-len(all)))
		if err != nil {
			return nil, 0, err
		}
		total += n
		all = append(all, found...)
	}
	return all, total, nil
}
