package flight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/compress"
	"github.com/expediter-io/expediter/internal/shown"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

const (
	defaultClaimTTL  = time.Minute
	defaultResultTTL = 7 * 24 * time.Hour

	maxProbeInterval = time.Hour
)

// Config configures a [Flight]. Only Bucket is required.
type Config struct {
	// Bucket is the KV bucket, made from [kvlock.StreamConfig]. Required.
	Bucket string

	// ClaimTTL is the time for which a claim holds without a renewal, in whole seconds, at least one. Waiters wait that long for a paused
	// owner, and for an owner that died or is cut off unless probes find that out sooner. Defaults to one minute.
	ClaimTTL time.Duration

	// Instance names this process in entries, where people read it. Defaults to host name, process id and a random part.
	Instance string

	// Logger gets the faults that no caller gets as an error: corrupt records, and renewals that failed. Defaults to slog.Default().
	Logger *slog.Logger

	// MaxValue bounds a value, in bytes; 1 GB at most. A larger value is neither stored nor read: the error is
	// ErrTooLarge. A value above 4 KB is compressed, if that makes it smaller. Defaults to 64 MB.
	MaxValue int

	// Memory bounds the results that this process also keeps in memory. Defaults to none.
	Memory MemoryConfig

	// Observe receives events, for metrics, traces and logs: see [EventKind]. It is called by many goroutines at once,
	// and the work waits for it. A panic is logged. Its context has the values of the caller's context, or of the first caller's where
	// several share a computation. Defaults to none, which costs nothing.
	Observe func(context.Context, Event)

	// OpTimeout bounds each operation in addition to its context, so that an unreachable server costs a caller no more
	// than this. It does not bound Wait, Watch or the function of Do. Defaults to 2 seconds.
	OpTimeout time.Duration

	// LargeValueBucket is the Object Store bucket, made from [LargeValueConfig], for values that do not fit into one
	// message of the server, compressed. Values in other buckets are read at any setting. Defaults to none: the error
	// for such a value is ErrTooLarge.
	LargeValueBucket string

	// ProbeInterval is the time between two probes of an owner's process while a call of Do waits for it, so that another process takes over
	// at once when the owner died, and not after ClaimTTL. After a wait of a second the interval grows, to five times as much. A process that
	// waits for several others probes one of them in ten intervals, in turn. So no process sends more than that, however many wait for each
	// other, and each is probed by all. When an owner that was connected to another server of the cluster is not reached, the process
	// connects to that server for a moment, as its own connection would, and asks there: the connection has to know the addresses of all
	// servers. Probes go to "kvlock.alive.<bucket>.>". Every process needs the permission to publish and to subscribe to it; without the
	// permission, claims last until their TTL. At most an hour; a negative interval turns probing off. Defaults to 25 milliseconds.
	ProbeInterval time.Duration

	// ResultTTL is the time for which a result is kept when the call names no TTL, in whole seconds, at least one. Defaults to 7 days.
	ResultTTL time.Duration
}

// Flight computes each key at most once at a time, across goroutines, processes and machines, and keeps the results.
// Make one for each bucket and process with [New]; it is safe for concurrent use.
type Flight struct {
	store    *kv.Store
	cfg      Config
	liveness *kv.Members // nil when there is none
	memory   *memory     // nil when nothing is kept
	codec    compress.Codec
	counts   counters
	closing  sync.Once

	mu    sync.Mutex
	local map[string]*call
	work  sync.WaitGroup // computations of Do
}

func (cfg Config) withDefaults() Config {
	cfg.ClaimTTL = cmp.Or(cfg.ClaimTTL, defaultClaimTTL)
	cfg.MaxValue = cmp.Or(cfg.MaxValue, defaultMaxValue)
	cfg.ProbeInterval = cmp.Or(cfg.ProbeInterval, kv.ProbeEvery)
	cfg.ResultTTL = cmp.Or(cfg.ResultTTL, defaultResultTTL)
	return cfg
}

func (cfg Config) store() kv.Config {
	return kv.Config{Bucket: cfg.Bucket, Instance: cfg.Instance, Logger: cfg.Logger, OpTimeout: cfg.OpTimeout}.WithDefaults()
}

func (cfg Config) validate() error {
	return errors.Join(cfg.store().Validate(), kv.CheckNamedTTL("kvlock: ClaimTTL", cfg.ClaimTTL),
		kv.CheckNamedTTL("kvlock: ResultTTL", cfg.ResultTTL), cfg.Memory.validate(), cfg.validateValues(),
		validate.If(cfg.ProbeInterval > maxProbeInterval, "kvlock: ProbeInterval is %s: want at most %s", cfg.ProbeInterval, maxProbeInterval))
}

// New binds to the bucket and checks that its stream has settings with which Flight is safe. Close ends it. It returns
// jetstream.ErrStreamNotFound when the bucket does not exist, and ErrUnavailable when no server answered within OpTimeout. Two round trips.
func New(ctx context.Context, js jetstream.JetStream, cfg Config) (*Flight, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	f := &Flight{cfg: cfg, codec: compress.New(), local: map[string]*call{}}
	store := cfg.store()
	store.Pushed, store.Read = f.viewPushed, f.viewRead
	var err error
	if f.store, err = kv.Open(ctx, js, store); err != nil {
		return nil, err
	}
	if err := f.open(ctx); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// open adds the parts of a Flight to its store.
func (f *Flight) open(ctx context.Context) (err error) {
	if err := checkLargeValues(ctx, f.store, f.cfg.LargeValueBucket); err != nil {
		return err
	}
	if f.liveness, err = kv.NewMembers(f.store, f.cfg.ProbeInterval); err != nil {
		return fmt.Errorf("kvlock: bind bucket %q: %w", f.cfg.Bucket, err)
	}
	f.memory, err = newMemory(ctx, f.store, f.cfg.Memory)
	return err
}

// Close ends all waits with ErrClosed, cancels the computations of Do, and returns when they have given their claims
// back. Claims from Begin and Resume stay until they expire, unless their holders end them before. Calling it again does nothing.
func (f *Flight) Close() { f.closing.Do(f.close) }

func (f *Flight) close() {
	f.mu.Lock() // waits until no computation is being added
	f.store.BeginClose()
	for _, c := range f.local {
		c.stop(context.Cause(f.store.Closing))
	}
	f.mu.Unlock()
	f.work.Wait()
	f.memory.close()
	f.liveness.Close()
	f.store.Close()
}

// DoOptions are the options of one [Flight.Do]. The zero value is valid.
type DoOptions struct {
	// ClaimTTL is the time after which another process takes over when this process dies. Defaults to Config.ClaimTTL.
	ClaimTTL time.Duration

	// FailOpen computes the value although JetStream is unreachable, and returns it although it could not be stored;
	// other processes may compute it too. Defaults to false: Do returns ErrUnavailable, and a call that waits for
	// another process waits until its context ends.
	FailOpen bool

	// FailureTTL returns the time for which an error of the function is kept: until then callers get a [FailedError] and do not run the
	// function again. A fraction of a second counts as one second. At 0 only callers that already wait get the error. Defaults to 0 for all
	// errors, and where it panics, which is logged.
	FailureTTL func(error) time.Duration

	// Fingerprint distinguishes inputs that share a key, in at most 1,024 bytes: hash a longer one. Defaults to none.
	Fingerprint string

	// Jitter makes each TTL of a result or a failure longer or shorter by up to this fraction of it, from 0 to 0.5, so
	// that results that were computed together do not expire together. Defaults to 0.
	Jitter float64

	// Job names the purpose of the call. Entries and later results carry its first 128 bytes, for display. Defaults to none.
	Job string

	// TTL is the time for which the result is kept. Defaults to Config.ResultTTL.
	TTL time.Duration
}

func (opts *DoOptions) validate() error {
	var claim, result, jitter error
	if opts.ClaimTTL != 0 {
		claim = kv.CheckNamedTTL("ClaimTTL", opts.ClaimTTL)
	}
	if opts.TTL != 0 {
		result = kv.CheckNamedTTL("TTL", opts.TTL)
	}
	if !(opts.Jitter >= 0 && opts.Jitter <= 0.5) {
		jitter = fmt.Errorf("DoOptions.Jitter is %g: want 0 to 0.5", opts.Jitter)
	}
	return errors.Join(claim, result, jitter, checkFingerprint(opts.Fingerprint)) // no allocation, for a result in memory
}

// failureTTL returns the time for which a failure is kept; 0 means not at all.
func (d *decision) failureTTL(err error) time.Duration {
	if d.opts.FailureTTL == nil {
		return 0
	}
	defer shown.Catch(d.flight.store.Log, "FailureTTL")
	return jitter(wholeSeconds(d.opts.FailureTTL(err)), d.opts.Jitter)
}

// wholeSeconds returns d rounded up to whole seconds, as a TTL; 0 for no TTL.
func wholeSeconds(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return min((min(d, kv.MaxTTL) + time.Second - 1).Truncate(time.Second), kv.MaxTTL)
}

// jitter makes ttl longer or shorter by up to a fraction of ttl, in whole seconds, so that results that were stored together do not expire
// together.
func jitter(ttl time.Duration, fraction float64) time.Duration {
	spread := time.Duration(fraction * float64(ttl))
	if spread <= 0 {
		return ttl
	}
	ttl += rand.N(2*spread+1) - spread
	return min(max(ttl.Round(time.Second), time.Second), kv.MaxTTL)
}
