// Package importer turns recipe videos and pages into recipes.
package importer

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/internal/api"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/store"
)

const (
	// consumerName is the durable consumer that all instances share.
	consumerName = "importer"

	// maxFile is the size limit of an uploaded file, and of any source, in bytes.
	maxFile = 8 << 20
)

// Job is a job and its state.
type Job = imports.Job

// Submission is a request for a job.
type Submission = imports.Submission

// Importer is a running importer.
type Importer struct {
	cfg     Config
	closers []func()
	files   *imports.Files
	recipes *store.Bucket // nil when another service keeps them
	running *service.Service
	service *imports.Service // nil until open
}

// Run connects to NATS, serves until ctx ends, and stops: requests and jobs under way are finished.
func Run(ctx context.Context, cfg Config) error {
	i, err := prepare(cfg)
	if err != nil {
		return err
	}
	if os.Getenv("GOMEMLIMIT") == "" { // collects garbage before it doubles the memory of the jobs
		debug.SetMemoryLimit(i.cfg.Memory + 128<<20)
	}
	return service.Run(ctx, i.spec())
}

// Start begins to serve on a connection that the caller keeps open until after Stop. It first checks the programs
// that the configuration needs: with YouTube, that yt-dlp works.
func Start(ctx context.Context, nc *nats.Conn, cfg Config) (*Importer, error) {
	i, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if i.running, err = service.Start(ctx, nc, i.spec()); err != nil {
		return nil, err
	}
	return i, nil
}

// prepare does the part of Start that needs no server.
func prepare(cfg Config) (*Importer, error) {
	cfg = cfg.withDefaults()
	return &Importer{cfg: cfg}, cfg.validate()
}

func (i *Importer) spec() service.Spec {
	return service.Spec{
		Checks:      func() map[string]error { return map[string]error{"outages": i.service.Check()} },
		Close:       i.close,
		Config:      i.cfg.BaseConfig,
		Description: "Turns recipe videos and pages into recipes",
		OpenAPI:     api.OpenAPI,
		Errors:      imports.Problem,
		Name:        name,
		Open:        i.open,
		Routes: func(r *service.Router) {
			r.Add(api.Operations(i.service, i.files, i.recipes)...)
		},
		Streams: i.cfg.streams(),
	}
}

// open makes the stores, the jobs and the worker.
func (i *Importer) open(ctx context.Context, s *service.Service) error {
	if err := i.openJobs(ctx, s); err != nil {
		return err
	}
	w, err := s.Worker("worker", worker.Config{
		Consumer: consumerName, Hooks: worker.Hooks{Settled: i.service.Settled}, StepBucket: contracts.BucketImportSteps,
		Stream: contracts.StreamImportJobs,
	})
	if err != nil {
		return err
	}
	// The priority of a job is a token of its subject.
	for priority, starts := range map[contracts.ImportPriority]worker.Priority{
		contracts.PriorityHigh: worker.PriorityHigh, contracts.PriorityNormal: worker.PriorityNormal, contracts.PriorityLow: worker.PriorityLow,
	} {
		policy := imports.Policy()
		policy.Priority = starts
		if err := worker.Handle(w, "jobs.import."+string(priority)+".>", policy, i.service.Work); err != nil {
			return err
		}
	}
	return nil
}

// openJobs makes the stores, the fetcher and the extractor, and the jobs that use them.
func (i *Importer) openJobs(ctx context.Context, s *service.Service) (err error) {
	if i.files, err = imports.OpenFiles(ctx, s.JetStream, i.cfg.Logger, maxFile, i.cfg.TranscriptTTL); err != nil {
		return err
	}
	i.closers = append(i.closers, i.files.Close)
	settings, err := i.cfg.jobs(i.files)
	if err != nil {
		return err
	}
	if settings.Store == nil {
		if settings.Store, err = i.cfg.store(s.JetStream); err != nil {
			return err
		}
	}
	if recipes, ok := settings.Store.(*store.Bucket); ok {
		i.recipes = recipes
	}
	if closer, ok := settings.Store.(interface{ Close() }); ok && i.cfg.Store == nil {
		i.closers = append(i.closers, closer.Close)
	}
	if s.Config.Exports != nil {
		settings.Meter = s.Config.Exports.Meters.Meter(scope)
	}
	settings.Charge = i.files.Charge
	settings.Telemetry, settings.Observe = s.Telemetry, s.Telemetry.Observe(contracts.BucketImportSteps)
	if i.service, err = imports.New(ctx, s.JetStream, settings); err != nil {
		return err
	}
	return s.Held(i.service.Held)
}

func (i *Importer) close() error {
	if i.service != nil {
		i.service.Close()
	}
	for _, c := range i.closers {
		c()
	}
	return nil
}

// URL is the base URL of the HTTP API, or "" when there is none.
func (i *Importer) URL() string { return i.running.URL() }

// Submit stores and queues a job without a network in between, and reports whether the job is new.
func (i *Importer) Submit(ctx context.Context, sub Submission) (Job, bool, error) {
	return i.service.Submit(ctx, sub)
}

// Keep stores a file of an owner, such as captions or a photo of a recipe, and returns the URL that names it in a job. The error wraps
// contracts.ErrTooLarge for a file of more than 8 MiB.
func (i *Importer) Keep(ctx context.Context, ownerID, name string, content []byte) (url string, err error) {
	return i.files.Put(ctx, ownerID, name, content)
}

// Get returns a job.
func (i *Importer) Get(ctx context.Context, jobID string) (Job, error) {
	return i.service.Get(ctx, jobID)
}

// Follow calls onChange with the job, and again after each change, until the job has ended or onChange returns an error,
// which Follow returns. It may leave out states that lasted only a moment.
func (i *Importer) Follow(ctx context.Context, jobID string, onChange func(Job) error) error {
	sub, err := i.service.Subscribe(ctx, jobID, 0)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		update, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		if err := onChange(update.Job); err != nil || update.Job.Status.Final() {
			return err
		}
	}
}

// Recipes returns the embedded store of recipes, nil when recipes are kept elsewhere.
func (i *Importer) Recipes() *store.Bucket { return i.recipes }

// Stop takes no more requests and jobs, waits until those under way are finished or handed back, and returns the errors
// of the importer while it ran. It may be called more than once.
func (i *Importer) Stop() error { return i.running.Stop() }
