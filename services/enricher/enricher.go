package enricher

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
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
	"github.com/expediter-io/expediter/services/enricher/internal/httpapi"
	"github.com/expediter-io/expediter/services/enricher/internal/natsapi"
)

const (
	// consumerName is the durable consumer that all instances share.
	consumerName = "enricher"

	// readyTimeout bounds one check of readiness.
	readyTimeout = time.Second
)

// Stats is what an enricher has done since it started.
type Stats = enrich.Stats

// Enricher is a running enricher.
type Enricher struct {
	cfg       Config
	nc        *nats.Conn
	service   *enrich.Service
	telemetry *natsotel.Telemetry
	micro     *service.Micro
	api       *httpapi.API
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
			return fmt.Errorf("enricher: %w", err)
		}
		defer func() { err = errors.Join(err, service.StopExports(ctx, cfg.Exports)) }()
	}
	e, err := Start(ctx, nc, cfg)
	if err != nil {
		return err
	}
	cfg.Logger.InfoContext(ctx, "enricher: ready", "http", e.URL(), "nats", nc.ConnectedUrlRedacted())
	select {
	case <-ctx.Done():
	case <-e.parts.Ended():
	}
	return e.Stop()
}

// Start begins to serve on a connection that the caller keeps open until after Stop.
func Start(ctx context.Context, nc *nats.Conn, cfg Config) (*Enricher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	providers, err := cfg.providers()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("enricher: %w", err)
	}
	if err := (service.Assets{
		Create: cfg.CreateAssets, Logger: cfg.Logger, Name: name, Streams: assets,
		Options: contracts.AssetOptions{MaxBytes: cfg.MaxBytes, Replicas: cfg.Replicas, Storage: cfg.Storage},
	}).Prepare(ctx, js); err != nil {
		return nil, err
	}
	telemetry, err := service.Telemetry(name, cfg.Exports)
	if err != nil {
		return nil, err
	}
	settings := cfg.answering(providers)
	settings.Inject, settings.Observe = telemetry.Inject, telemetry.Observe(contracts.BucketEnrich)
	answers, err := enrich.New(ctx, js, settings)
	if err != nil {
		return nil, err
	}
	e := &Enricher{cfg: cfg, nc: nc, parts: service.NewParts(ctx), service: answers, telemetry: telemetry}
	if err := e.start(ctx, js); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// assets are the names of the streams that the enricher works with. The one for dead letters is the worker's to check:
// who writes to it need not be permitted to look into it.
var assets = []string{
	contracts.StreamEnrichJobs,
	"KV_" + contracts.BucketEnrich, "KV_" + contracts.BucketJobs, "KV_" + contracts.BucketRequests,
}

func (e *Enricher) start(ctx context.Context, js jetstream.JetStream) error {
	w, err := e.newWorker(js)
	if err != nil {
		return err
	}
	if e.server, err = service.Listen(ctx, name, e.cfg.Listen); err != nil {
		return err
	}
	if e.cfg.Exports != nil {
		if err := e.watchStats(); err != nil {
			return err
		}
	}
	if e.micro, err = service.StartMicro(e.nc, service.MicroConfig{
		Description: "Attaches delivery links to restaurants", Endpoints: natsapi.Endpoints(e.service), Logger: e.cfg.Logger,
		Name: name, Sort: enrich.Problem, Version: e.cfg.Version,
	}); err != nil {
		return err
	}
	e.parts.Go(w.Run)
	e.serve()
	return nil
}

// serve answers HTTP, as one of the parts.
func (e *Enricher) serve() {
	router := service.NewRouter(service.RouterConfig{
		Exports: e.cfg.Exports, Logger: e.cfg.Logger, Name: name, Ready: e.ready, Sort: enrich.Problem, Version: e.cfg.Version,
	})
	e.api = httpapi.Add(httpapi.Config{Origins: e.cfg.Origins, Router: router, Service: e.service})
	e.server.Serve(e.parts, service.ServerConfig{
		Exports: e.cfg.Exports, Handler: router, Logger: e.cfg.Logger, Name: name, WriteTimeout: contracts.MaxWait + 30*time.Second,
	})
}

func (e *Enricher) newWorker(js jetstream.JetStream) (*worker.Worker, error) {
	e.workerState.Store(&workerState{reason: errNotStarted})
	w, err := worker.New(js, worker.Config{
		AckWait: e.cfg.AckWait, AutoCreate: e.cfg.CreateAssets, Bucket: contracts.BucketJobs, Concurrency: e.cfg.Concurrency,
		Consumer: consumerName, Logger: e.cfg.Logger, Stream: contracts.StreamEnrichJobs,
		Hooks: e.telemetry.Hooks(worker.Hooks{
			Ready:   func(_ bool, reason error) { e.workerState.Store(&workerState{reason: reason}) },
			Settled: e.service.Settled,
		}),
		Middleware: []worker.Middleware{e.telemetry.Middleware},
	})
	if err != nil {
		return nil, err
	}
	if err := worker.Handle(w, contracts.EnrichJobsSubjects, enrich.Policy(), e.service.Work); err != nil {
		return nil, err
	}
	return w, nil
}

// ready runs the checks of readiness.
func (e *Enricher) ready(ctx context.Context) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	checks := map[string]error{
		"nats": nil, "store": e.service.Ping(ctx), "worker": e.workerState.Load().reason,
	}
	if !e.nc.IsConnected() {
		checks["nats"] = fmt.Errorf("connection is %s", e.nc.Status())
	}
	return checks
}

// URL is the base URL of the HTTP API, or "" when there is none.
func (e *Enricher) URL() string { return e.server.URL() }

// Enrich answers a request without a network in between. It returns an error that names every failing field when the
// request is invalid. See the package for costs.
func (e *Enricher) Enrich(ctx context.Context, req contracts.EnrichRequest) (contracts.EnrichResponse, error) {
	if err := req.Validate(); err != nil {
		return contracts.EnrichResponse{}, err
	}
	return e.service.Enrich(ctx, req)
}

// Results returns what look-ups of places at a provider came to, with score and evidence, by place id; places without a
// result are left out. One round trip for each 512 places.
func (e *Enricher) Results(ctx context.Context, provider string, placeIDs []string) (map[string]contracts.EnrichResult, error) {
	return e.service.Results(ctx, provider, placeIDs)
}

// Stats returns what the enricher has done since it started.
func (e *Enricher) Stats() Stats { return e.service.Stats() }

// Stop takes no more requests and jobs, waits until those under way are finished or handed back, and returns what went
// wrong while the enricher ran. It may be called more than once.
func (e *Enricher) Stop() error {
	e.stopOnce.Do(func() { e.stopErr = e.stop() })
	return e.stopErr
}

func (e *Enricher) stop() error {
	err := errors.Join(e.micro.Stop(), e.server.Stop())
	if e.api != nil {
		e.api.Wait()
	}
	err = errors.Join(err, e.parts.Stop())
	e.service.Close()
	return err
}
