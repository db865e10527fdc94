package kvlock

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	defaultClaimTTL  = time.Minute
	defaultOpTimeout = 2 * time.Second
	defaultResultTTL = 7 * 24 * time.Hour

	defaultProbeInterval = 25 * time.Millisecond

	// maxTTL is the longest TTL: far below where seconds would overflow, far above what anybody keeps.
	maxTTL = 10 * 365 * 24 * time.Hour
)

// Config says how a [Flight] works.
type Config struct {
	// Bucket is the KV bucket, made from [StreamConfig]. Required.
	Bucket string

	// ClaimTTL is how long a claim holds without a renewal, in whole seconds, at least one. It is how long waiters
	// wait for an owner that died, or for one that is cut off. Defaults to one minute.
	ClaimTTL time.Duration

	// CompressAbove compresses values of more than so many bytes, when that makes them smaller. Whatever it is, values
	// are read that others compressed. Defaults to 4 KB; -1 compresses none.
	CompressAbove int

	// Instance names this process in slots, for people who look. Defaults to host name, process id and a random part.
	Instance string

	// Logger gets what nobody else is told: corrupt records, and renewals that failed. Defaults to slog.Default().
	Logger *slog.Logger

	// MaxValue bounds a value, in bytes, to 1 GB at most: a larger one is not stored, and one that others stored is not
	// read. ErrTooLarge says so. Defaults to 64 MB.
	MaxValue int

	// Memory says how many results are kept in this process beside the bucket. Defaults to none.
	Memory MemoryConfig

	// Observe is told what happens, for metrics, traces and logs: see [EventKind]. It is called by who does the work, by
	// many at once, and returns at once: the work waits for it. Its context has the values of the caller's, or of the
	// first caller's where several share a computation. Defaults to nothing, which costs nothing.
	Observe func(context.Context, Event)

	// OpTimeout bounds each operation beside its context, so that an unreachable server costs a caller no more than
	// this. It does not bound Wait, Watch or the function of Do. Defaults to 2 seconds.
	OpTimeout time.Duration

	// Overflow is the Object Store bucket, made from [OverflowConfig], for values that do not fit into one message of the
	// server, compressed. Whatever it is, values are read that others put there. Defaults to none: such a value is
	// ErrTooLarge.
	Overflow string

	// OverflowAbove puts values of more than so many bytes, compressed, into the Overflow bucket although they fit, so
	// that they are not pushed to those who watch. Defaults to 0: those that do not fit.
	OverflowAbove int

	// ProbeInterval is how often the process of an owner is probed while somebody waits for it in Do, so that another
	// takes over at once when it died, and not after ClaimTTL. Probes go to "kvlock.alive.<bucket>.>", which every
	// process has to be permitted to publish and to subscribe to; without the permission, claims last until their TTL.
	// A negative one turns it off. Defaults to 25 milliseconds.
	ProbeInterval time.Duration

	// ResultTTL is how long a result is kept when Complete is not told otherwise, in whole seconds, at least one.
	// Defaults to 7 days.
	ResultTTL time.Duration
}

func (cfg Config) withDefaults() Config {
	if cfg.ClaimTTL == 0 {
		cfg.ClaimTTL = defaultClaimTTL
	}
	if cfg.CompressAbove == 0 {
		cfg.CompressAbove = defaultCompressAbove
	}
	if cfg.MaxValue == 0 {
		cfg.MaxValue = defaultMaxValue
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
	if cfg.ProbeInterval == 0 {
		cfg.ProbeInterval = defaultProbeInterval
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
	if err := cfg.Memory.validate(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, cfg.values().validate())
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
	*store

	cfg     Config
	closing sync.Once
	seed    maphash.Seed // of when to compute what anew

	mu       sync.Mutex
	local    map[string]*call
	renewals map[string]*renewal
	work     sync.WaitGroup // computations of Do
}

// NewFlight binds to the bucket and checks that its stream has the settings that Flight is safe with. Close ends it.
// It returns jetstream.ErrStreamNotFound when there is no such bucket, and ErrUnavailable when nobody answered within
// OpTimeout. Two round trips.
func NewFlight(ctx context.Context, js jetstream.JetStream, cfg Config) (*Flight, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s, err := openStore(ctx, js, storeConfig{
		bucket: cfg.Bucket, instance: cfg.Instance, log: cfg.Logger, observe: cfg.Observe, opTimeout: cfg.OpTimeout,
		values: cfg.values(),
		probe:  cfg.ProbeInterval,
	})
	if err != nil {
		return nil, err
	}
	f := &Flight{store: s, cfg: cfg, local: map[string]*call{}, renewals: map[string]*renewal{}, seed: maphash.MakeSeed()}
	if err := s.openMemory(ctx, cfg.Memory); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
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
	f.store.close()
}
