package enrich

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// ErrUnknownProvider is returned when a request names a provider that this service does not have.
var ErrUnknownProvider = errors.New("enricher: unknown provider")

// Service answers requests and works jobs. It is safe for concurrent use. Close ends it.
type Service struct {
	cfg       Config
	flight    *flight.Flight
	client    *worker.Client
	logger    *slog.Logger
	names     []string // of the providers, in the order of the configuration
	providers map[string]provider.Provider
	requests  *kvrecord.Stream
	counters  counters
	claims    claims
	requeues  requeues

	subscriptions chan struct{} // has an element for each open subscription
	background    sync.WaitGroup
}

// New binds to the buckets. Two round trips.
func New(ctx context.Context, js jetstream.JetStream, cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(cfg.Providers) == 0 {
		return nil, errors.New("enricher: no provider: want at least one")
	}
	results, err := flight.New(ctx, js, flight.Config{
		Bucket: contracts.BucketEnrich, ClaimTTL: cfg.ClaimTTL, Logger: cfg.Logger, Observe: cfg.Observe,
		Memory: flight.MemoryConfig{MaxBytes: max(cfg.MemoryBytes, 0)}, OpTimeout: claimTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("enricher: %w", err)
	}
	records, err := kvrecord.New(kvrecord.Config{JetStream: js})
	if err != nil {
		results.Close()
		return nil, fmt.Errorf("enricher: %w", err)
	}
	client, err := worker.NewClient(js, worker.ClientConfig{
		RequestTimeout: publishTry, SettleTimeout: claimTimeout, Stream: contracts.StreamEnrichJobs,
	})
	if err != nil {
		results.Close()
		return nil, fmt.Errorf("enricher: %w", err)
	}
	s := &Service{
		cfg: cfg, client: client, flight: results, logger: cfg.Logger, providers: map[string]provider.Provider{},
		counters: counters{Stats: Stats{Outcomes: map[contracts.Outcome]int64{}, Skipped: map[SkipReason]int64{}}},
		requests: records.Bucket(contracts.BucketRequests), subscriptions: make(chan struct{}, cfg.MaxSubscriptions),
	}
	for _, p := range cfg.Providers {
		s.names = append(s.names, p.Name())
		s.providers[p.Name()] = p
	}
	return s, nil
}

// Close waits for the work in the background and ends all subscriptions.
func (s *Service) Close() {
	s.background.Wait() // each piece of work is bounded, and needs the Flight
	s.flight.Close()
	s.requests.Close()
}

// Problem maps an error of this service to the problem that a client gets. It is a [service.ErrorMapper].
func Problem(err error) service.Problem {
	switch {
	case errors.Is(err, ErrUnknownProvider):
		return service.Problem{Status: http.StatusBadRequest}
	case errors.Is(err, ErrUnknownRequest):
		return service.Problem{Status: http.StatusNotFound}
	case errors.Is(err, ErrRequestTaken), errors.Is(err, ErrRequestFull):
		return service.Problem{Status: http.StatusConflict}
	case errors.Is(err, ErrTooManySubscriptions):
		return service.Problem{Status: http.StatusServiceUnavailable}
	case errors.Is(err, kvlock.ErrUnavailable), errors.Is(err, kvrecord.ErrUnavailable):
		return service.Unavailable()
	case errors.Is(err, kvlock.ErrClosed), errors.Is(err, kvrecord.ErrClosed):
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: "the service is stopping"}
	}
	return service.Problem{}
}

// Config configures a [Service].
type Config struct {
	// ClaimTTL is the time after which a claim that is not renewed expires, in whole seconds. Defaults to 60 seconds.
	ClaimTTL time.Duration

	// Deprecated writes the field `wolt` beside `providers.wolt`, for readers that have not moved yet.
	// Defaults to false.
	Deprecated bool

	// Enabled looks places up. When it is off, requests are answered as they came. Defaults to false.
	Enabled bool

	// FoundTTL is the time for which an answer FOUND is kept, ±10 %. Defaults to 7 days.
	FoundTTL time.Duration

	// LeaseTTL is the time for which a worker that does not renew its lease keeps the place that it looks up, in whole
	// seconds. After it another worker takes over from one that was killed. Defaults to 10 seconds, about as long as a
	// change of the stream's leader takes.
	LeaseTTL time.Duration

	// Logger gets the events of this package. Defaults to slog.Default().
	Logger *slog.Logger

	// MaxSubscriptions bounds the subscriptions open at a time in this process. Defaults to 10,000.
	MaxSubscriptions int

	// MemoryBytes bounds the results that this process keeps in memory, so that a request whose places it has costs no round
	// trip. Results in memory are settled, have not expired, and are dropped when the store changes them: see
	// [flight.MemoryConfig]. When the push of a change is lost, the old result is answered for up to 3 seconds more; a
	// result that an administrator removed from the stream by hand, for up to 5 minutes. The process gets every change of
	// the bucket, and sends the stream's leader one small request a second. Defaults to 32 MiB, some 20,000 results; -1
	// keeps none.
	MemoryBytes int64

	// NotFoundTTL is the time for which an answer NOT_FOUND is kept, ±10 %. Defaults to 24 hours.
	NotFoundTTL time.Duration

	// Observe is called with each event of an entry. Defaults to nothing.
	Observe func(context.Context, flight.Event)

	// Providers are asked about every place. At least one, with different names. Required.
	Providers []provider.Provider

	// RequestTTL is the time after a request for which its events can be subscribed to, in whole seconds. Defaults to 1
	// hour.
	RequestTTL time.Duration

	// StoreTimeout bounds the time that one request spends on the store and the queue: after it the request is answered with the
	// results so far, while claims and jobs are finished in the background. Defaults to 1.8 seconds, so that the answer is out
	// within two.
	StoreTimeout time.Duration

	// Telemetry measures and traces jobs that are queued, and searches. Defaults to none.
	Telemetry *natsotel.Telemetry
}

func (cfg Config) withDefaults() Config {
	cfg.ClaimTTL = cmp.Or(cfg.ClaimTTL, time.Minute)
	cfg.FoundTTL = cmp.Or(cfg.FoundTTL, 7*24*time.Hour)
	cfg.LeaseTTL = cmp.Or(cfg.LeaseTTL, 10*time.Second)
	cfg.MaxSubscriptions = cmp.Or(cfg.MaxSubscriptions, 10_000)
	cfg.MemoryBytes = cmp.Or(cfg.MemoryBytes, 32<<20)
	cfg.NotFoundTTL = cmp.Or(cfg.NotFoundTTL, 24*time.Hour)
	cfg.RequestTTL = cmp.Or(cfg.RequestTTL, time.Hour)
	cfg.StoreTimeout = cmp.Or(cfg.StoreTimeout, 1800*time.Millisecond)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return cfg
}

// Validate reports every mistake at once, except that there are no providers, which New reports.
func (cfg Config) Validate() error {
	cfg = cfg.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("enricher: "+format, args...)) }
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"ClaimTTL", cfg.ClaimTTL},
		{"FoundTTL", cfg.FoundTTL},
		{"LeaseTTL", cfg.LeaseTTL},
		{"NotFoundTTL", cfg.NotFoundTTL},
		{"RequestTTL", cfg.RequestTTL},
	} {
		if d.value < time.Second || d.value%time.Second != 0 {
			bad("%s is %s: want whole seconds, at least 1s", d.name, d.value)
		}
	}
	if cfg.MemoryBytes < -1 {
		bad("MemoryBytes is %d: want a positive number, or -1 for none", cfg.MemoryBytes)
	}
	seen := map[string]bool{}
	for _, p := range cfg.Providers {
		name := p.Name()
		if _, err := contracts.EnrichEntryKey(name, "any"); err != nil {
			bad("provider %q: its name must be made of letters, digits, '_' and '-': %w", name, err)
		}
		if seen[name] {
			bad("two providers are named %q: names must differ", name)
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}

// limits returns the limits of the jobs of each provider that is a [provider.Limited].
func limits(providers []provider.Provider) []worker.Limit {
	var all []worker.Limit
	for _, p := range providers {
		limited, ok := p.(provider.Limited)
		if !ok {
			continue
		}
		l := limited.Limits()
		all = append(all, worker.Limit{
			Burst: l.Burst, Concurrency: l.Searches, Name: limitName(p.Name()), Per: l.Gap, Rate: 1,
			Subjects: strings.TrimSuffix(contracts.EnrichJobsSubjects, ">") + p.Name() + ".>", Turns: true,
		})
	}
	return all
}

func limitName(providerName string) string { return "provider-" + providerName }

// Turn returns the function by which a provider waits before each call of a search.
func Turn(providerName string) func(context.Context) error {
	return func(ctx context.Context) error { return worker.Turn(ctx, limitName(providerName)) }
}

// Event is the second part of a log event's name; the provider's name is the first, as in "wolt_cache_hit". It is the
// attribute "event" of a log line.
type Event string

// The log events of a request, with their attributes beside requestId, placeId and restaurantName.
const (
	EventCacheHit       Event = "cache_hit"       // status
	EventCacheMiss      Event = "cache_miss"      // cityText
	EventLockAcquired   Event = "lock_acquired"   // claim
	EventLockSkipped    Event = "lock_skipped"    // owner: another process has the claim
	EventLockFailed     Event = "lock_failed"     // lockError
	EventJobEnqueued    Event = "job_enqueued"    // name, cityText, statusSet, reason
	EventEnqueueSkipped Event = "enqueue_skipped" // reason: a SkipReason
)

// The log events of a job, with their attributes beside requestId, placeId and restaurantName.
const (
	EventMatched      Event = "matched"       // outcome, score, venueId, candidates
	EventJobSkipped   Event = "job_skipped"   // reason: the place needs no work any more, or not now
	EventProviderFail Event = "provider_fail" // attempt, error, kind: the provider.Kind, or "" for any other error
)

// SkipReason is the reason why no job was queued for a place.
type SkipReason string

// The reasons, by the names that operators search for.
const (
	SkipFlagDisabled     SkipReason = "flag_disabled"     // enrichment is switched off
	SkipNoResults        SkipReason = "no_results"        // the request has no restaurants
	SkipStoreDown        SkipReason = "store_down"        // the entries cannot be read
	SkipStoreFull        SkipReason = "store_full"        // the request cannot be recorded
	SkipAlreadyCached    SkipReason = "already_cached"    // the entry holds an answer
	SkipLockHeld         SkipReason = "lock_held"         // another process has the claim, or the job is queued already
	SkipLockError        SkipReason = "lock_error"        // the claim could not be taken
	SkipQueueUnavailable SkipReason = "queue_unavailable" // the job could not be queued
)

// log writes one event of a lookup.
func (s *Service) log(ctx context.Context, level slog.Level, event Event, t *lookup, attrs ...slog.Attr) {
	if !s.logger.Enabled(ctx, level) {
		return
	}
	name := t.job.Provider + "_" + string(event)
	all := append([]slog.Attr{
		slog.String("event", name), slog.String("requestId", t.job.RequestID), slog.String("placeId", t.job.PlaceID),
		slog.String("restaurantName", t.job.Name),
	}, attrs...)
	s.logger.LogAttrs(ctx, level, name, all...)
}

// skip logs that no job was queued for a lookup, and counts it.
func (s *Service) skip(ctx context.Context, t *lookup, reason SkipReason) {
	s.count(func(c *Stats) { c.Skipped[reason]++ })
	level := slog.LevelDebug
	if reason == SkipStoreDown || reason == SkipLockError || reason == SkipQueueUnavailable {
		level = slog.LevelWarn
	}
	s.log(ctx, level, EventEnqueueSkipped, t, slog.String("reason", string(reason)))
}

// Stats counts the work of a Service since it was made.
type Stats struct {
	Requests      int64                       `json:"requests"`       // answered
	Places        int64                       `json:"places"`         // asked for, each provider counted
	Hits          int64                       `json:"hits"`           // answered from an entry
	Jobs          int64                       `json:"jobs"`           // queued
	ProviderCalls int64                       `json:"provider_calls"` // searches made by jobs
	Outcomes      map[contracts.Outcome]int64 `json:"outcomes"`       // of the look-ups that ended
	Patches       int64                       `json:"patches"`        // handed to subscribers
	Skipped       map[SkipReason]int64        `json:"skipped"`
}

// counters are the Stats so far.
type counters struct {
	Stats

	mu sync.Mutex
}

// count adds to the Stats.
func (s *Service) count(add func(*Stats)) {
	s.counters.mu.Lock()
	defer s.counters.mu.Unlock()
	add(&s.counters.Stats)
}

// Stats returns the counts so far.
func (s *Service) Stats() Stats {
	s.counters.mu.Lock()
	defer s.counters.mu.Unlock()
	now := s.counters.Stats
	now.Outcomes, now.Skipped = maps.Clone(now.Outcomes), maps.Clone(now.Skipped)
	return now
}

// published is the last state of a place that a subscriber has received: none, no answer for now, or the answer. It only
// grows.
type published uint8

const (
	publishedNothing published = iota
	publishedUnresolved
	publishedAnswer
)

// progress is the state that a subscriber has received of each place of a request. Event ids carry it: two bits for each
// place, in the order of the request's record, behind the record's nonce. So any process can continue exactly where another
// one stopped, in whatever order the answers came, and no state is kept for subscribers that may come back.
type progress struct {
	nonce     string
	published []published
}

// eventID returns the progress as the id of the event that brought it about.
func (p progress) eventID() string {
	bits := make([]byte, (len(p.published)+3)/4)
	for i, t := range p.published {
		bits[i/4] |= byte(t) << (i % 4 * 2)
	}
	return p.nonce + "." + base64.RawURLEncoding.EncodeToString(bits)
}

// resume applies the progress in an event id. The record may have more places since then: the subscriber has received
// nothing about the added ones. It reports false for an id of another request, of an earlier one under the same id, or one that was never
// issued.
func (p progress) resume(eventID string) bool {
	nonce, encoded, found := strings.Cut(eventID, ".")
	if !found || nonce != p.nonce {
		return false
	}
	bits, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(bits) > (len(p.published)+3)/4 {
		return false
	}
	for i := range p.published {
		if i/4 < len(bits) {
			p.published[i] = min(published(bits[i/4]>>(i%4*2)&3), publishedAnswer)
		}
	}
	return true
}

// complete reports whether the subscriber has received something about every place.
func (p progress) complete() bool {
	return !slices.Contains(p.published, publishedNothing)
}
