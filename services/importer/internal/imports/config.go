package imports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsotel"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/internal/retry"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// DefaultMemory is the default of Config.Memory.
const DefaultMemory = 256 << 20

// minMemory is what the largest page takes to be read, in bytes.
const minMemory = 160 << 20

// Config configures a [Service].
type Config struct {
	// Backlog bounds the jobs of each caller that wait. Defaults to no bound.
	Backlog *service.Backlog

	// ClaimTTL is how long a shared step that a worker is in stays the worker's when it does not renew that, because it is
	// frozen or cut off, in whole seconds. Defaults to 15 seconds.
	ClaimTTL time.Duration

	// Extractor makes recipes of what sources say. Required.
	Extractor Extractor

	// ExtractTTL is how long what was extracted from a transcript is kept for other jobs, in whole seconds.
	// Defaults to 7 days.
	ExtractTTL time.Duration

	// Fetcher fetches sources. Required.
	Fetcher source.Fetcher

	// Logger gets the events of this package. Defaults to slog.Default().
	Logger *slog.Logger

	// Memory is about how much sources, and what is made of them, may take at once, in bytes: jobs wait for it. Defaults to 256 MiB.
	Memory int64

	// Meter makes the instruments. Defaults to one that measures nothing.
	Meter metric.Meter

	// Observe is called with each event of a shared step. Defaults to nothing.
	Observe func(context.Context, flight.Event)

	// OutagePatience is for how long a job waits for a far side that does not work: then it fails. A far side that refuses our
	// key is waited for without an end. Defaults to 24 hours.
	OutagePatience time.Duration

	// Passed is called at each point of a job's life, in tests. Defaults to nothing.
	Passed func(point string)

	// RetryCreate, RetryExtract and RetryStatus are how often an attempt makes each call. Default to 3 repetitions after 1
	// second, 2 after 2 seconds and 3 after 500 milliseconds.
	RetryCreate, RetryExtract, RetryStatus retry.Policy

	// SourceAttempts is after how many attempts a failure of one source that may pass is final. Defaults to 5.
	SourceAttempts int

	// StateTTL is how long the state of a job is kept after its last change, in whole seconds. Defaults to 30 days.
	StateTTL time.Duration

	// Store takes the recipes. Required.
	Store store.Store

	// Telemetry measures and traces jobs that are queued, and calls of far sides. Defaults to none.
	Telemetry *natsotel.Telemetry

	// TranscriptTTL is how long the transcript of a source is kept for other jobs, in whole seconds. Defaults to 7 days.
	TranscriptTTL time.Duration

	// Unique imports a source once for each owner: a second job is the first one, unless that has failed. It applies to jobs
	// that are submitted, not to those that are published. Defaults to false: then the client decides for each job.
	Unique bool
}

// Extractor is an extractor and what its results depend on.
type Extractor struct {
	extract.Extractor

	// Name is what it is called: rules, orchestrator or openai.
	Name string

	// Version changes when its results do: the version of its rules, or the service, the model and the prompt.
	Version string
}

func (cfg Config) withDefaults() Config {
	cfg.ClaimTTL = cmp.Or(cfg.ClaimTTL, 15*time.Second)
	cfg.ExtractTTL = cmp.Or(cfg.ExtractTTL, 7*24*time.Hour)
	cfg.OutagePatience = cmp.Or(cfg.OutagePatience, 24*time.Hour)
	cfg.RetryCreate = cmp.Or(cfg.RetryCreate, retry.Policy{Retries: 3, Base: time.Second})
	cfg.RetryExtract = cmp.Or(cfg.RetryExtract, retry.Policy{Retries: 2, Base: 2 * time.Second})
	cfg.RetryStatus = cmp.Or(cfg.RetryStatus, retry.Policy{Retries: 3, Base: 500 * time.Millisecond})
	cfg.SourceAttempts = cmp.Or(cfg.SourceAttempts, 5)
	cfg.StateTTL = cmp.Or(cfg.StateTTL, 30*24*time.Hour)
	cfg.TranscriptTTL = cmp.Or(cfg.TranscriptTTL, 7*24*time.Hour)
	cfg.Memory = cmp.Or(cfg.Memory, DefaultMemory)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Meter == nil {
		cfg.Meter = noop.Meter{}
	}
	return cfg
}

// Validate reports everything that is wrong at once, but for parts that are missing, which New does.
func (cfg Config) Validate() error {
	cfg = cfg.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("importer: "+format, args...)) }
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"ClaimTTL", cfg.ClaimTTL}, {"ExtractTTL", cfg.ExtractTTL}, {"StateTTL", cfg.StateTTL}, {"TranscriptTTL", cfg.TranscriptTTL},
	} {
		if d.value < time.Second || d.value%time.Second != 0 {
			bad("%s is %s: want whole seconds, at least 1s", d.name, d.value)
		}
	}
	if cfg.Memory < minMemory {
		bad("Memory is %d: want at least %d bytes", cfg.Memory, minMemory)
	}
	if cfg.OutagePatience < 0 {
		bad("OutagePatience is %s: want more than 0", cfg.OutagePatience)
	}
	for name, policy := range map[string]retry.Policy{
		"RetryCreate": cfg.RetryCreate, "RetryExtract": cfg.RetryExtract, "RetryStatus": cfg.RetryStatus,
	} {
		if err := policy.Validate(); err != nil {
			bad("%s: %w", name, err)
		}
	}
	if cfg.SourceAttempts < 1 || cfg.SourceAttempts > jobAttempts {
		bad("SourceAttempts is %d: want 1 to %d", cfg.SourceAttempts, jobAttempts)
	}
	return errors.Join(errs...)
}
