package importer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/internal/files"
	"github.com/expediter-io/expediter/services/importer/internal/httpapi"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/internal/natsapi"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

const (
	// consumerName is the durable consumer that all instances share.
	consumerName = "importer"

	// maxFile is how large a file may be that is handed in, the most that is read of any source.
	maxFile = 8 << 20

	// readyTimeout bounds one check of readiness.
	readyTimeout = time.Second
)

// Stats is what an importer has done since it started.
type Stats = imports.Stats

// Job is a job and where it stands.
type Job = imports.Job

// Submission is a job that somebody hands in.
type Submission = imports.Submission

// Importer is a running importer.
type Importer struct {
	cfg       Config
	nc        *nats.Conn
	service   *imports.Service
	files     *files.Store
	recipes   *kvstore.Store // nil when another service has them
	closers   []func()
	telemetry *natsotel.Telemetry
	micro     *service.Micro
	parts     *service.Parts
	server    *service.Server

	stopOnce    sync.Once
	stopErr     error
	workerState atomic.Pointer[workerState]
}

type workerState struct{ reason error }

var errNotStarted = errors.New("the worker has not started to take jobs")

// Run connects to NATS, serves until ctx ends, and stops: requests and jobs under way are finished.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg = cfg.withDefaults()
	nc, err := service.NATS{
		CA: cfg.NATSCA, Creds: cfg.NATSCreds, Logger: cfg.Logger, Name: name, Nkey: cfg.NATSNkey, URL: cfg.NATSURL,
	}.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if cfg.Exports == nil {
		if cfg.Exports, err = export.Start(ctx, export.Config{Service: name, Version: cfg.Version}); err != nil {
			return fmt.Errorf("importer: %w", err)
		}
		defer func() { err = errors.Join(err, service.StopExports(ctx, cfg.Exports)) }()
	}
	i, err := Start(ctx, nc, cfg)
	if err != nil {
		return err
	}
	cfg.Logger.InfoContext(ctx, "importer: ready", "http", i.URL(), "nats", nc.ConnectedUrlRedacted())
	select {
	case <-ctx.Done():
	case <-i.parts.Ended():
	}
	return i.Stop()
}

// Start begins to serve on a connection that the caller keeps open until after Stop. It checks what the configuration
// needs first: with YouTube on, that yt-dlp is there.
func Start(ctx context.Context, nc *nats.Conn, cfg Config) (*Importer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("importer: %w", err)
	}
	if err := (service.Assets{
		Create: cfg.CreateAssets, Logger: cfg.Logger, Name: name, Streams: cfg.assets(),
		Options: contracts.AssetOptions{MaxBytes: cfg.MaxBytes, Replicas: cfg.Replicas, Storage: cfg.Storage},
	}).Prepare(ctx, js); err != nil {
		return nil, err
	}
	i := &Importer{cfg: cfg, nc: nc, parts: service.NewParts(ctx)}
	if err := i.start(ctx, js); err != nil {
		return nil, errors.Join(err, i.Stop())
	}
	return i, nil
}

func (i *Importer) start(ctx context.Context, js jetstream.JetStream) error {
	if err := i.makeService(ctx, js); err != nil {
		return err
	}
	w, err := i.newWorker(js)
	if err != nil {
		return err
	}
	if i.server, err = service.Listen(ctx, name, i.cfg.Listen); err != nil {
		return err
	}
	if i.micro, err = service.StartMicro(i.nc, service.MicroConfig{
		Description: "Turns recipe videos and pages into recipes", Endpoints: natsapi.Endpoints(i.service), Logger: i.cfg.Logger,
		Name: name, Sort: imports.Problem, Version: i.cfg.Version,
	}); err != nil {
		return err
	}
	i.parts.Go(w.Run)
	router := service.NewRouter(service.RouterConfig{
		Exports: i.cfg.Exports, Logger: i.cfg.Logger, Name: name, Ready: i.ready, Sort: imports.Problem, Version: i.cfg.Version,
	})
	httpapi.Add(httpapi.Config{Files: i.files, Recipes: i.recipes, Router: router, Service: i.service})
	i.server.Serve(i.parts, service.ServerConfig{Exports: i.cfg.Exports, Handler: router, Logger: i.cfg.Logger, Name: name})
	return nil
}

// makeService makes what fetches, extracts and stores, and the service on top of it.
func (i *Importer) makeService(ctx context.Context, js jetstream.JetStream) error {
	var err error
	i.files, err = files.Open(ctx, js, files.Config{Logger: i.cfg.Logger, MaxBytes: maxFile, TTL: i.cfg.fileTTL()})
	if err != nil {
		return err
	}
	i.closers = append(i.closers, i.files.Close)
	settings, err := i.cfg.jobs(i.files)
	if err != nil {
		return err
	}
	if settings.Store == nil {
		if settings.Store, err = i.cfg.store(ctx, js); err != nil {
			return err
		}
	}
	if recipes, ok := settings.Store.(*kvstore.Store); ok {
		i.recipes = recipes
	}
	if closer, ok := settings.Store.(interface{ Close() }); ok && i.cfg.Store == nil {
		i.closers = append(i.closers, closer.Close)
	}
	if i.telemetry, err = service.Telemetry(name, i.cfg.Exports); err != nil {
		return err
	}
	settings.Inject, settings.Observe = i.telemetry.Inject, i.telemetry.Observe(contracts.BucketImportSteps)
	i.service, err = imports.New(ctx, js, settings)
	return err
}

func (i *Importer) newWorker(js jetstream.JetStream) (*worker.Worker, error) {
	i.workerState.Store(&workerState{reason: errNotStarted})
	w, err := worker.New(js, worker.Config{
		AckWait: i.cfg.AckWait, AutoCreate: i.cfg.CreateAssets, Bucket: contracts.BucketJobs, Concurrency: i.cfg.Concurrency,
		Consumer: consumerName, Logger: i.cfg.Logger, StepBucket: contracts.BucketImportSteps, Stream: contracts.StreamImportJobs,
		Hooks: i.telemetry.Hooks(worker.Hooks{
			Ready:   func(_ bool, reason error) { i.workerState.Store(&workerState{reason: reason}) },
			Settled: i.service.Settled,
		}),
		Middleware: []worker.Middleware{i.telemetry.Middleware},
	})
	if err != nil {
		return nil, err
	}
	// The priority of a job is a token of its subject.
	for priority, starts := range map[contracts.ImportPriority]worker.Priority{
		contracts.PriorityHigh: worker.PriorityHigh, contracts.PriorityNormal: worker.PriorityNormal, contracts.PriorityLow: worker.PriorityLow,
	} {
		policy := imports.Policy()
		policy.Priority = starts
		if err := worker.Handle(w, "jobs.import."+string(priority)+".>", policy, i.service.Work); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// ready runs the checks of readiness.
func (i *Importer) ready(ctx context.Context) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	checks := map[string]error{
		"nats": nil, "store": i.service.Ping(ctx), "worker": i.workerState.Load().reason,
	}
	if !i.nc.IsConnected() {
		checks["nats"] = fmt.Errorf("connection is %s", i.nc.Status())
	}
	return checks
}

// URL is the base URL of the HTTP API, or "" when there is none.
func (i *Importer) URL() string { return i.server.URL() }

// Submit takes a job in without a network in between, and reports whether it is a new one.
func (i *Importer) Submit(ctx context.Context, sub Submission) (Job, bool, error) {
	return i.service.Submit(ctx, sub)
}

// Keep takes a file in, such as captions or a photo of a recipe, and returns the URL that a job names it by. The error
// wraps contracts.ErrTooLarge for one of more than 8 MiB.
func (i *Importer) Keep(ctx context.Context, name string, content []byte) (url string, err error) {
	return i.files.Put(ctx, name, content)
}

// Get returns a job.
func (i *Importer) Get(ctx context.Context, jobID string) (Job, error) {
	return i.service.Get(ctx, jobID)
}

// Follow calls told with the job as it is, and again whenever that has changed, until the job has ended or told returns an
// error, which is returned. States that came and went in between may be left out.
func (i *Importer) Follow(ctx context.Context, jobID string, told func(Job) error) error {
	sub, err := i.service.Subscribe(ctx, jobID, 0)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		job, _, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		if err := told(job); err != nil || job.Status.Final() {
			return err
		}
	}
}

// Recipes are the recipes of the embedded store, nil when they are kept elsewhere.
func (i *Importer) Recipes() *kvstore.Store { return i.recipes }

// Stats returns what the importer has done since it started.
func (i *Importer) Stats() Stats { return i.service.Stats() }

// Stop takes no more requests and jobs, waits until those under way are finished or handed back, and returns what went
// wrong while the importer ran. It may be called more than once.
func (i *Importer) Stop() error {
	i.stopOnce.Do(func() { i.stopErr = i.stop() })
	return i.stopErr
}

func (i *Importer) stop() error {
	errs := []error{i.micro.Stop(), i.server.Stop(), i.parts.Stop()}
	if i.service != nil {
		errs = append(errs, i.service.Close())
	}
	for _, c := range i.closers {
		c()
	}
	return errors.Join(errs...)
}
