// Package imports turns jobs into recipes: it accepts them, works them in durable steps, and reports their status.
//
// The state of a job is one record in a bucket. A write succeeds only if no other process has changed the record in the meantime.
// A final state stays, unless a client asks for a retry, which begins another run of the job.
//
// The transcript of a source and the recipe extracted from it are computed once for all jobs, by a flight.Flight; the
// steps of a job are kept by the worker, so that a job goes on where its worker died.
package imports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"golang.org/x/sync/semaphore"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// claimTimeout bounds one operation on a claim.
const claimTimeout = 3 * time.Second

// Service accepts jobs and works them. It is safe for concurrent use. Close ends it.
type Service struct {
	remotes remotes
	cfg     Config
	flight  *flight.Flight
	hub     *hub
	jobs    *kvrecord.Stream
	client  *worker.Client
	logger  *slog.Logger
	meters  meters

	memory     *memory.Room
	turns      *semaphore.Weighted // one for each job that is worked
	progresses *kvrecord.Stream    // of all jobs, by their workers

	background sync.WaitGroup
}

// New binds to the buckets. Three round trips.
func New(ctx context.Context, js jetstream.JetStream, cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Fetcher == nil || cfg.Store == nil || cfg.Extractor.Extractor == nil || cfg.Extractor.Name == "" {
		return nil, errors.New("importer: Fetcher, Store and Extractor with a name are required")
	}
	s := &Service{
		cfg: cfg, logger: cfg.Logger, memory: memory.New(cfg.Memory, cfg.Concurrency/waitingShare), turns: semaphore.NewWeighted(allTurns),
	}
	var err error
	if s.client, err = worker.NewClient(js, worker.ClientConfig{Stream: contracts.StreamImportJobs}); err != nil {
		return nil, fmt.Errorf("importer: %w", err)
	}
	if s.meters, err = newMeters(cfg.Meter); err != nil {
		return nil, err
	}
	if s.hub, err = newHub(js.Conn()); err != nil {
		return nil, err
	}
	s.flight, err = flight.New(ctx, js, flight.Config{
		Bucket: contracts.BucketImportSteps, ClaimTTL: cfg.ClaimTTL, Logger: cfg.Logger, Observe: cfg.Observe, OpTimeout: claimTimeout,
		LargeValueBucket: contracts.ObjectsImportSteps,
	})
	if err != nil {
		s.hub.close()
		return nil, fmt.Errorf("importer: %w", err)
	}
	records, err := kvrecord.New(kvrecord.Config{JetStream: js})
	if err != nil {
		s.flight.Close()
		s.hub.close()
		return nil, fmt.Errorf("importer: %w", err)
	}
	s.jobs, s.progresses = records.Bucket(contracts.BucketImportJobs), records.Bucket(contracts.BucketJobs)
	return s, nil
}

// Close waits for the work in the background and ends all subscriptions.
func (s *Service) Close() {
	s.background.Wait()
	s.flight.Close()
	s.jobs.Close()
	s.hub.close()
}

// Get returns a job. The error wraps ErrUnknownJob when there is no such job. One round trip, two for a running job.
func (s *Service) Get(ctx context.Context, jobID string) (Job, error) {
	r, _, err := s.read(ctx, jobID)
	if err != nil {
		return Job{}, err
	}
	return s.view(ctx, &r), nil
}

const (
	// minMemory leaves enough for the largest page in the part for large sources, in bytes.
	minMemory = 216 << 20

	// waitingShare is the share of the slots in which a job may wait for memory. In another it is put off.
	waitingShare = 4
)

// Settings are the parts of a [Config] that operators set. The tags name environment variables of the importer.
type Settings struct {
	// Memory bounds, roughly, the bytes of the sources and recipes that are worked on at a time: jobs wait for memory. A quarter is
	// for sources that need no more than 3/16 of it. A process that only imports takes at most as much again, beside its programs.
	// Defaults to 256 MiB, the least is 216 MiB.
	Memory int64 `env:"IMPORTER_MEMORY"`

	// OutagePatience is the time for which a job waits for a remote service that does not work, before the job fails. For a remote service
	// that refuses our key it waits without an end. Defaults to 24 hours.
	OutagePatience time.Duration `env:"IMPORTER_OUTAGE_PATIENCE"`

	// RetryCreate, RetryExtract and RetryStatus are the repetitions and the first pause, which doubles, of the calls that one
	// attempt at a job makes: to the recipe store for the recipe, to the extractor, and to the recipe store for states and
	// transcripts. Default to "3,1s", "2,2s" and "3,500ms".
	RetryCreate  RetryPolicy `env:"IMPORTER_RETRY_CREATE"`
	RetryExtract RetryPolicy `env:"IMPORTER_RETRY_EXTRACT"`
	RetryStatus  RetryPolicy `env:"IMPORTER_RETRY_STATUS"`

	// SourceAttempts is the number of attempts after which a temporary failure of one source, such as a host without an
	// address, is final. Defaults to 5.
	SourceAttempts int `env:"IMPORTER_SOURCE_ATTEMPTS"`

	// StateTTL is the time for which the state of a job is kept after its last change, in whole seconds. Defaults to 30
	// days.
	StateTTL time.Duration `env:"IMPORTER_STATE_TTL"`

	// TranscriptTTL is the time for which the transcript of a source and its extraction are kept for other jobs, and an
	// uploaded file for its own job, in whole seconds. Defaults to 7 days.
	TranscriptTTL time.Duration `env:"IMPORTER_TRANSCRIPT_TTL"`
}

// WithDefaults returns the settings with the defaults of those that are not set.
func (s Settings) WithDefaults() Settings {
	s.Memory = cmp.Or(s.Memory, 256<<20)
	s.OutagePatience = cmp.Or(s.OutagePatience, 24*time.Hour)
	s.RetryCreate = cmp.Or(s.RetryCreate, RetryPolicy{Retries: 3, Base: time.Second})
	s.RetryExtract = cmp.Or(s.RetryExtract, RetryPolicy{Retries: 2, Base: 2 * time.Second})
	s.RetryStatus = cmp.Or(s.RetryStatus, RetryPolicy{Retries: 3, Base: 500 * time.Millisecond})
	s.SourceAttempts = cmp.Or(s.SourceAttempts, 5)
	s.StateTTL = cmp.Or(s.StateTTL, 30*24*time.Hour)
	s.TranscriptTTL = cmp.Or(s.TranscriptTTL, 7*24*time.Hour)
	return s
}

// Validate reports every mistake at once. It expects the defaults to be set.
func (s Settings) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("importer: "+format, args...)) }
	for name, ttl := range map[string]time.Duration{"StateTTL": s.StateTTL, "TranscriptTTL": s.TranscriptTTL} {
		if ttl < time.Second || ttl%time.Second != 0 {
			bad("%s is %s: want whole seconds, at least 1s", name, ttl)
		}
	}
	if s.Memory < minMemory {
		bad("Memory is %d: want at least %d bytes", s.Memory, minMemory)
	}
	if s.OutagePatience < 0 {
		bad("OutagePatience is %s: want more than 0", s.OutagePatience)
	}
	for name, policy := range map[string]RetryPolicy{
		"RetryCreate": s.RetryCreate, "RetryExtract": s.RetryExtract, "RetryStatus": s.RetryStatus,
	} {
		if err := policy.Validate(); err != nil {
			bad("%s: %w", name, err)
		}
	}
	if s.SourceAttempts < 1 || s.SourceAttempts > jobAttempts {
		bad("SourceAttempts is %d: want 1 to %d", s.SourceAttempts, jobAttempts)
	}
	return errors.Join(errs...)
}

// Config configures a [Service].
type Config struct {
	Settings

	// ClaimTTL is the time for which a worker that does not renew its claim, because it is frozen or cut off, keeps a
	// shared step, in whole seconds. Defaults to 15 seconds.
	ClaimTTL time.Duration

	// Charge counts the bytes of a transcript that is about to be kept for an owner, see [Files.Charge]. Defaults to none.
	Charge func(ctx context.Context, ownerID string, size int) error

	// Concurrency is the number of jobs that the process works at a time. Defaults to 0, with which no large source waits in a slot.
	Concurrency int

	// Extractor makes recipes of sources. Required.
	Extractor Extractor

	// Fetcher fetches sources. Required.
	Fetcher source.Fetcher

	// Logger gets the events of this package. Defaults to slog.Default().
	Logger *slog.Logger

	// Meter makes the instruments. Defaults to one that measures nothing.
	Meter metric.Meter

	// Observe is called with each event of a shared step. Defaults to nothing.
	Observe func(context.Context, flight.Event)

	// Passed is called at each point of a job's life, in tests. Defaults to nothing.
	Passed func(point string)

	// Store takes the recipes. Required.
	Store store.Store

	// Telemetry measures and traces jobs that are queued, and calls of remote services. Defaults to none.
	Telemetry *natsotel.Telemetry
}

// Extractor is an extractor with its name and version.
type Extractor struct {
	extract.Extractor

	// Name is the name of the extractor: rules, orchestrator or openai.
	Name string

	// Version changes with the results of the extractor: the version of its rules, or the service, the model and the
	// prompt.
	Version string
}

func (cfg Config) withDefaults() Config {
	cfg.Settings = cfg.WithDefaults()
	cfg.ClaimTTL = cmp.Or(cfg.ClaimTTL, 15*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Meter == nil {
		cfg.Meter = noop.Meter{}
	}
	return cfg
}

// meters are the instruments. Names and units are those of OpenTelemetry; Prometheus adds units and "_total".
type meters struct {
	jobs     metric.Int64Counter     // by outcome and code
	retries  metric.Int64Counter     // by operation
	duration metric.Float64Histogram // of a job from its start, by outcome
	step     metric.Float64Histogram // by step and outcome
}

// seconds are the bounds of histograms of times from milliseconds to minutes.
var seconds = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 90, 180, 600}

func newMeters(m metric.Meter) (meters, error) {
	var out meters
	var errs [4]error
	out.jobs, errs[0] = m.Int64Counter("importer.jobs", metric.WithUnit("{job}"),
		metric.WithDescription("Imports that ended, by outcome and code."))
	out.retries, errs[1] = m.Int64Counter("importer.retries", metric.WithUnit("{retry}"), metric.WithDescription("Repetitions, by operation."))
	out.duration, errs[2] = m.Float64Histogram("importer.job.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(seconds...),
		metric.WithDescription("Time from the start of an import's last attempt to its end."))
	out.step, errs[3] = m.Float64Histogram("importer.step.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(seconds...),
		metric.WithDescription("Time that steps took: transcript fetches, extractions, recipe creations."))
	if err := errors.Join(errs[:]...); err != nil {
		return out, fmt.Errorf("importer: telemetry: %w", err)
	}
	return out, nil
}

// timed measures a step that was taken here, not shared.
func (s *Service) timed(ctx context.Context, name string, started time.Time, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	s.meters.step.Record(ctx, time.Since(started).Seconds(),
		metric.WithAttributes(attribute.String("step", name), attribute.String("outcome", outcome)))
}

func (s *Service) ended(ctx context.Context, r *record, started time.Time) {
	outcome := metric.WithAttributes(attribute.String("outcome", string(r.Status)), attribute.String("code", string(r.Code)))
	s.meters.jobs.Add(ctx, 1, outcome)
	s.meters.duration.Record(ctx, time.Since(started).Seconds(), metric.WithAttributes(attribute.String("outcome", string(r.Status))))
}
