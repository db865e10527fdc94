package kvlock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/limit"
)

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
