package imports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
)

const (
	// claimTimeout bounds one operation on a claim.
	claimTimeout = 3 * time.Second
)

// Service takes jobs in and works them. It is safe for concurrent use. Close ends it.
type Service struct {
	breaker  breaker
	cfg      Config
	flight   *flight.Flight
	hub      *hub
	jobs     *kvrecord.Stream
	client   *worker.Client
	logger   *slog.Logger
	counters counters
	meters   meters

	memory     *memory.Room
	turns      *semaphore.Weighted // one of them for each job that is worked
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
	s := &Service{cfg: cfg, logger: cfg.Logger, memory: memory.New(cfg.Memory), turns: semaphore.NewWeighted(allTurns)}
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
		return nil, errors.Join(fmt.Errorf("importer: %w", err), s.hub.close())
	}
	records, err := kvrecord.New(kvrecord.Config{JetStream: js})
	if err != nil {
		s.flight.Close()
		return nil, errors.Join(fmt.Errorf("importer: %w", err), s.hub.close())
	}
	s.jobs, s.progresses = records.Bucket(contracts.BucketImportJobs), records.Bucket(contracts.BucketJobs)
	return s, nil
}

// Close waits for what still runs in the background and ends all subscriptions.
func (s *Service) Close() error {
	s.background.Wait()
	s.flight.Close()
	s.jobs.Close()
	return s.hub.close()
}

// Get returns a job. The error wraps ErrUnknownJob when there is none. One round trip, two for a job that runs.
func (s *Service) Get(ctx context.Context, jobID string) (Job, error) {
	r, _, err := s.read(ctx, jobID)
	if err != nil {
		return Job{}, err
	}
	return s.view(ctx, &r), nil
}
