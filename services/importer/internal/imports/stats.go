package imports

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Stats is what a Service has done since it was made.
type Stats struct {
	Submitted         int64                          `json:"submitted"` // new jobs taken in
	Ready             int64                          `json:"ready"`
	Failed            int64                          `json:"failed"`
	Cancelled         int64                          `json:"cancelled"`
	TranscriptFetches int64                          `json:"transcript_fetches"` // sources that were really fetched
	Extractions       int64                          `json:"extractions"`        // calls of the extractor
	Retries           int64                          `json:"retries"`            // of operations within an attempt
	Failures          map[contracts.ImportCode]int64 `json:"failures,omitempty"`
}

type counters struct {
	submitted, ready, failed, cancelled, fetches, extractions, retries atomic.Int64

	mu       sync.Mutex
	failures map[contracts.ImportCode]int64
}

// Stats returns the counts so far.
func (s *Service) Stats() Stats {
	c := &s.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Submitted: c.submitted.Load(), Ready: c.ready.Load(), Failed: c.failed.Load(), Cancelled: c.cancelled.Load(),
		TranscriptFetches: c.fetches.Load(), Extractions: c.extractions.Load(), Retries: c.retries.Load(), Failures: maps.Clone(c.failures),
	}
}

func (c *counters) fail(code contracts.ImportCode) {
	c.failed.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures == nil {
		c.failures = map[contracts.ImportCode]int64{}
	}
	c.failures[code]++
}

// meters are the instruments. Names and units are those of OpenTelemetry; Prometheus adds units and "_total".
type meters struct {
	jobs     metric.Int64Counter     // by outcome and code
	retries  metric.Int64Counter     // by operation
	duration metric.Float64Histogram // of a job from its start, by outcome
	step     metric.Float64Histogram // by step and outcome
}

// seconds are bounds for what takes from milliseconds to minutes.
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
	for _, err := range errs {
		if err != nil {
			return out, fmt.Errorf("importer: telemetry: %w", err)
		}
	}
	return out, nil
}

func (s *Service) retried(ctx context.Context, operation string) {
	s.counters.retries.Add(1)
	s.meters.retries.Add(ctx, 1, metric.WithAttributes(attribute.String("operation", operation)))
}

// timed measures a step that was really taken, not shared.
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
	if r.Status == contracts.ImportReady {
		s.counters.ready.Add(1)
	} else {
		s.counters.fail(r.Code)
	}
}
