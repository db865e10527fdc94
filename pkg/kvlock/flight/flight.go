package flight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/compress"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
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
	// Set by New.
	store    *kv.Store
	cfg      Config
	liveness *kv.Members // nil when there is none
	memory   *memory     // nil when nothing is kept
	codec    compress.Codec

	// Safe for concurrent use.
	counts  counters
	work    sync.WaitGroup // computations of Do
	closing sync.Once

	mu    sync.Mutex              // guards the fields below
	local map[string]*computation // that run in this process, by key
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
	f := &Flight{cfg: cfg, codec: compress.New(), local: map[string]*computation{}}
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
	defer redact.Catch(d.flight.store.Log, "FailureTTL")
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
	if ttl == 0 || fraction == 0 {
		return ttl
	}
	return min(max(retry.Spread(ttl, fraction).Round(time.Second), time.Second), kv.MaxTTL)
}

// EventKind is the kind of an event. It serves as the name of a counter, of a log line, of an event in a trace.
type EventKind string

// The events that Config.Observe receives.
const (
	// EventAcquired: a claim was taken, by Begin, Resume or Do.
	EventAcquired EventKind = "acquired"
	// EventHeld: a claim was refused, because Claim is held by Owner.
	EventHeld EventKind = "held"
	// EventReleased: the holder ended its claim after Elapsed. State is Done, Failed with a FailedError in Err, Pending after a hand-off, or
	// Absent after a release.
	EventReleased EventKind = "released"
	// EventLost: the holder found that another process has its claim, or that no renewal was acknowledged in time.
	EventLost EventKind = "lost"
	// EventRenewalFailed: a renewal was not acknowledged, for the reason in Err, and is sent again.
	EventRenewalFailed EventKind = "renewal failed"
	// EventTakeOver: a waiter took the claim of Owner, which died, as Attempt. The waiter had waited for Elapsed.
	EventTakeOver EventKind = "take-over"

	// EventWaiting: a call begins to wait for Claim, held by Owner. Claim is empty when it is not known yet.
	EventWaiting EventKind = "waiting"
	// EventCoalesced: after Elapsed a wait ended with the value that Owner computed under Claim, or with its failure in
	// Err.
	EventCoalesced EventKind = "coalesced"
	// EventWaitTimeout: a caller gave up after Elapsed, for the reason in Err. The computation goes on for other
	// callers.
	EventWaitTimeout EventKind = "wait timeout"
	// EventReturned: a call of Do ended after Elapsed, with Outcome, or with Err.
	EventReturned EventKind = "returned"

	// EventPanic: the function of Do panicked; Err is the PanicError.
	EventPanic EventKind = "panic"
	// EventCorrupt: a record that cannot be read was removed. Err has the reason.
	EventCorrupt EventKind = "corrupt"
)

// Event is an event of a key. Fields without a meaning for its kind are zero.
//
// Claim is the same in the events of a waiter and in those of the owner, in all processes. A tracer can store the span of EventAcquired
// under Claim, and link the span of EventWaiting or EventCoalesced to it.
type Event struct {
	Kind    EventKind
	Key     string
	Claim   string        // the id of the claim
	Owner   string        // the instance that holds or held the claim
	Outcome Outcome       // how Do obtained its value
	State   State         // of the key, now
	Attempt int           // of the claim, from 1
	Elapsed time.Duration // the duration of the work or wait that ended with this event
	Err     error
}

// emit passes an event to the observer, if there is one. The caller holds no mutex.
func (f *Flight) emit(ctx context.Context, e Event) {
	if f.cfg.Observe != nil {
		defer redact.Catch(f.store.Log, "Observe")
		f.cfg.Observe(ctx, e)
	}
}

// event returns the event about an entry that another process holds or wrote.
func (s Entry) event(kind EventKind) Event {
	return Event{Kind: kind, Key: s.Key, Claim: s.Claim, Owner: s.Owner, Attempt: s.Attempt}
}

// tell emits an event of the claim.
func (c *Claim) tell(ctx context.Context, kind EventKind, err error) {
	if c.flight.cfg.Observe == nil {
		return
	}
	c.mu.Lock()
	attempt := c.record.Attempt
	c.mu.Unlock()
	e := Event{Kind: kind, Key: c.key, Claim: c.id, Owner: c.flight.store.Instance, Attempt: attempt, Err: err}
	if kind != EventAcquired {
		e.Elapsed = time.Since(c.taken)
	}
	c.flight.emit(ctx, e)
}

// tellLost emits EventLost, once.
func (c *Claim) tellLost(ctx context.Context, err error) {
	if !c.lost.Swap(true) {
		c.tell(ctx, EventLost, err)
	}
}

// tellReleased emits EventReleased with the state in entry, in which the holder left the key.
func (c *Claim) tellReleased(ctx context.Context, entry Entry) {
	if c.flight.cfg.Observe == nil {
		return
	}
	e := Event{
		Kind: EventReleased, Key: c.key, Claim: c.id, Owner: c.flight.store.Instance, State: entry.State, Attempt: entry.Attempt,
		Elapsed: time.Since(c.taken),
	}
	switch {
	case entry.released:
		e.State = Absent
	case entry.State == Failed:
		e.Err = &FailedError{Key: c.key, Reason: entry.Reason, Owner: e.Owner}
	}
	c.flight.emit(ctx, e)
}

// Stats counts the work of a [Flight] since it was made.
type Stats struct {
	// Reads of keys, by Get and GetMany, and by Do before it computes anything.
	Memory MemoryStats // reads that cost no round trip
	Hits   uint64      // found in the bucket
	Misses uint64      // absent or pending

	// Calls of Do, except those that memory answered.
	Cached    uint64
	Coalesced uint64
	Computed  uint64
	Errors    uint64 // that returned an error

	TakeOvers uint64 // claims taken from an owner that died
	Waits     uint64 // for a computation, in this process or another
}

// MemoryStats has the size of a Flight's memory, and counts its work.
type MemoryStats struct {
	Bytes   int64 // held now: keys, values, and overhead
	Entries int64 // held now; some may have expired

	Flushes uint64 // of everything, because changes of the bucket were not pushed
	Hits    uint64 // reads that cost no round trip
	Refused uint64 // answers that were not kept, because a change might have overtaken them
}

// Stats returns the counts since the Flight was made. No round trip.
func (f *Flight) Stats() Stats {
	c := &f.counts
	return Stats{
		Hits: c.hits.Load(), Misses: c.misses.Load(),
		Cached: c.outcomes[Cached].Load(), Coalesced: c.outcomes[Coalesced].Load(), Computed: c.outcomes[Computed].Load(),
		Errors: c.errors.Load(), Memory: f.memory.counts(), TakeOvers: c.takeOvers.Load(), Waits: c.waits.Load(),
	}
}

// counters are the counts that Stats sums up.
type counters struct {
	errors, hits, misses, takeOvers, waits atomic.Uint64

	outcomes [4]atomic.Uint64 // by Outcome
}
