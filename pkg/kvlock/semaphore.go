package kvlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/limit"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

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
