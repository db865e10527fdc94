// Package enricher attaches delivery links to restaurants. It looks up each place once, however many requests name it.
//
// [Run] is the service: it answers over HTTP and NATS micro, and handles the jobs that its answers queue.
// [Start] runs it within another program.
package enricher

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/internal/meters"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/internal/api"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// consumerName is the durable consumer that all instances share.
const consumerName = "enricher"

// Stats counts the work of an enricher since it started.
type Stats = enrich.Stats

// Enricher is a running enricher.
type Enricher struct {
	cfg       Config
	providers []provider.Provider
	running   *service.Service
	service   *enrich.Service // nil until open
}

// Run connects to NATS, serves until ctx ends, and stops: requests and jobs under way are finished.
func Run(ctx context.Context, cfg Config) error {
	e, err := prepare(cfg)
	if err != nil {
		return err
	}
	return service.Run(ctx, e.spec())
}

// Start begins to serve on a connection that the caller keeps open until after Stop.
func Start(ctx context.Context, nc *nats.Conn, cfg Config) (*Enricher, error) {
	e, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if e.running, err = service.Start(ctx, nc, e.spec()); err != nil {
		return nil, err
	}
	return e, nil
}

// prepare does the part of Start that needs no server.
func prepare(cfg Config) (e *Enricher, err error) {
	e = &Enricher{cfg: cfg.withDefaults()}
	if err := e.cfg.validate(); err != nil {
		return nil, err
	}
	e.providers, err = e.cfg.providers()
	return e, err
}

func (e *Enricher) spec() service.Spec {
	return service.Spec{
		Close:       e.close,
		Config:      e.cfg.BaseConfig,
		Description: "Attaches delivery links to restaurants",
		OpenAPI:     api.OpenAPI,
		Errors:      enrich.Problem,
		Name:        name,
		Open:        e.open,
		Routes:      func(r *service.Router) { r.Add(api.Operations(e.service)...) },
		Streams: []string{
			contracts.StreamDead, contracts.StreamEnrichJobs,
			"KV_" + contracts.BucketEnrich, "KV_" + contracts.BucketJobs, "KV_" + contracts.BucketRequests,
		},
		Timeout:      contracts.MaxWait + 15*time.Second,
		WriteTimeout: contracts.MaxWait + 30*time.Second,
	}
}

// open makes the service that answers requests, and the worker.
func (e *Enricher) open(ctx context.Context, s *service.Service) error {
	if err := e.answer(ctx, s); err != nil {
		return err
	}
	w, err := s.Worker("worker", worker.Config{
		Consumer: consumerName, Hooks: worker.Hooks{Settled: e.service.Settled}, Stream: contracts.StreamEnrichJobs,
	})
	if err != nil {
		return err
	}
	return worker.Handle(w, contracts.EnrichJobsSubjects, e.service.Policy(), e.service.Work)
}

func (e *Enricher) answer(ctx context.Context, s *service.Service) (err error) {
	settings := e.cfg.answering(e.providers)
	settings.Telemetry, settings.Observe = s.Telemetry, s.Telemetry.Observe(contracts.BucketEnrich)
	if e.service, err = enrich.New(ctx, s.JetStream, settings); err != nil {
		return err
	}
	if err := s.Held(e.held); err != nil {
		return err
	}
	return e.exportStats(s.Config.Exports)
}

// held calls report for each provider that can be held back: with 1 when it is not called now, with 0 otherwise.
func (e *Enricher) held(report func(side string, n int)) {
	for _, p := range e.providers {
		if guarded, ok := p.(interface{ Held() bool }); ok {
			n := 0
			if guarded.Held() {
				n = 1
			}
			report(p.Name(), n)
		}
	}
}

func (e *Enricher) close() error {
	if e.service != nil {
		e.service.Close()
	}
	return nil
}

// URL is the base URL of the HTTP API, or "" when there is none.
func (e *Enricher) URL() string { return e.running.URL() }

// Enrich answers a request without a network in between. It returns an error that names every failing field when the
// request is invalid. See the package for costs.
func (e *Enricher) Enrich(ctx context.Context, req contracts.EnrichRequest) (contracts.EnrichResponse, error) {
	if err := req.Validate(); err != nil {
		return contracts.EnrichResponse{}, err
	}
	return e.service.Enrich(ctx, req)
}

// Results returns the results of the look-ups of a request at a provider, with score and evidence, by place id. Places without a
// result are left out. One round trip for each 512 places, and one more for each 512 whose first entry has another description.
func (e *Enricher) Results(
	ctx context.Context, providerName string, req contracts.EnrichRequest,
) (map[string]contracts.EnrichResult, error) {
	return e.service.Results(ctx, providerName, req)
}

// Stats returns the counts since the enricher started.
func (e *Enricher) Stats() Stats { return e.service.Stats() }

// Stop takes no more requests and jobs, waits until those under way are finished or handed back, and returns the errors
// of the enricher while it ran. It may be called more than once.
func (e *Enricher) Stop() error { return e.running.Stop() }

// exportStats exports the counts of Stats as metrics. Without exports it does nothing.
func (e *Enricher) exportStats(exports *export.Exports) error {
	if exports == nil {
		return nil
	}
	m := meters.New(exports.Meters.Meter("github.com/expediter-io/expediter/services/enricher"))
	requests := m.Counter("enricher.requests", "{request}", "Requests answered.")
	places := m.Counter("enricher.places", "{place}", "Places asked for, each provider counted.")
	hits := m.Counter("enricher.hits", "{place}", "Places answered from a known result.")
	jobs := m.Counter("enricher.jobs", "{job}", "Jobs queued.")
	calls := m.Counter("enricher.provider.calls", "{call}", "Searches made by jobs.")
	patches := m.Counter("enricher.patches", "{patch}", "Patches handed to subscribers.")
	lookups := m.Counter("enricher.lookups", "{lookup}", "Look-ups that ended, by outcome.")
	skips := m.Counter("enricher.skips", "{place}", "Places that were not looked up, by reason.")
	_, err := m.Observe(func(_ context.Context, o metric.Observer) error {
		s := e.Stats()
		o.ObserveInt64(requests, s.Requests)
		o.ObserveInt64(places, s.Places)
		o.ObserveInt64(hits, s.Hits)
		o.ObserveInt64(jobs, s.Jobs)
		o.ObserveInt64(calls, s.ProviderCalls)
		o.ObserveInt64(patches, s.Patches)
		for _, outcome := range []contracts.Outcome{
			contracts.OutcomeFound, contracts.OutcomeNotFound, contracts.OutcomeAmbiguous, contracts.OutcomeError,
		} {
			o.ObserveInt64(lookups, s.Outcomes[outcome], metric.WithAttributes(attribute.String("outcome", string(outcome))))
		}
		for reason, n := range s.Skipped {
			o.ObserveInt64(skips, n, metric.WithAttributes(attribute.String("reason", string(reason))))
		}
		return nil
	})
	return err
}
