package enrich

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/service"
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
	client, err := newClient(js)
	if err != nil {
		results.Close()
		return nil, err
	}
	s := &Service{
		cfg: cfg, client: client, flight: results, logger: cfg.Logger, providers: map[string]provider.Provider{},
		requests: records.Bucket(contracts.BucketRequests), subscriptions: make(chan struct{}, cfg.MaxSubscriptions),
	}
	for _, p := range cfg.Providers {
		s.names = append(s.names, p.Name())
		s.providers[p.Name()] = p
	}
	return s, nil
}

// Close waits for what still runs in the background and ends all subscriptions.
func (s *Service) Close() {
	s.background.Wait() // each part is bounded, and needs the Flight
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
