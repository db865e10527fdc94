package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	stream   = "GEO"
	subjects = "geo.jobs.>"
	bucket   = "geo"

	// version is raised when the geometry library or the form of Output changes: results of the old one are not used then.
	version = "1"
)

// Job is one message of the stream.
type Job struct {
	ID      string `json:"id"`
	Process string `json:"process"`
	Inputs  Inputs `json:"inputs"`
}

// processor runs jobs, each once for all that have the same inputs.
type processor struct {
	flight *flight.Flight
	caches map[string]*flight.Cache[Job, Output]
	kinds  map[string]process
	slow   time.Duration // an additional delay of each operation

	mu  sync.Mutex
	out io.Writer
}

// newProcessor binds to the bucket and the stream, and makes them where they are missing.
func newProcessor(ctx context.Context, js jetstream.JetStream, out io.Writer, slow time.Duration) (*processor, error) {
	if err := kvlock.CreateBucket(ctx, js, kvlock.BucketConfig{Bucket: bucket}); err != nil {
		return nil, err
	}
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: stream, Subjects: []string{subjects}, Retention: jetstream.WorkQueuePolicy,
	}); err != nil {
		return nil, fmt.Errorf("create stream %s: %w", stream, err)
	}
	p := &processor{caches: map[string]*flight.Cache[Job, Output]{}, kinds: map[string]process{}, slow: slow, out: out}
	var err error
	if p.flight, err = flight.New(ctx, js, flight.Config{Bucket: bucket, Observe: p.observe}); err != nil {
		return nil, err
	}
	for _, kind := range processes() {
		p.kinds[kind.name] = kind
		p.caches[kind.name], err = flight.NewCache[Job, Output](p.flight, flight.CacheConfig[Job]{
			Inputs:  func(j Job) any { return j.Inputs },
			JobID:   func(j Job) string { return j.ID },
			Options: flight.DoOptions{TTL: kind.keep},
			Process: kind.name,
			Version: version,
		})
		if err != nil {
			p.flight.Close()
			return nil, err
		}
	}
	return p, nil
}

// work runs jobs until ctx ends.
func (p *processor) work(ctx context.Context, js jetstream.JetStream, concurrency int) error {
	w, err := worker.New(js, worker.Config{
		AckWait: time.Second, AutoCreate: true, Concurrency: concurrency, Consumer: "geoprocessor",
		Logger: slog.New(slog.DiscardHandler), Stream: stream,
	})
	if err != nil {
		return err
	}
	if err := worker.Handle(w, subjects, worker.Policy{MaxAttempts: 5}, p.handle); err != nil {
		return err
	}
	return w.Run(ctx)
}

// handle runs one job through the cache. The value that the cache returns is the job's result, also when another worker
// computed it.
func (p *processor) handle(ctx context.Context, j *worker.Job[Job]) error {
	job := j.Args
	cache := p.caches[job.Process]
	if cache == nil {
		return worker.Discard(fmt.Errorf("no process %q", job.Process))
	}
	out, r, err := cache.Do(ctx, job, p.execute)
	if err != nil {
		p.sayf("%s: failed: %v", job.ID, err)
		if errors.Is(err, flight.ErrInvalidInputs) {
			return worker.Discard(err)
		}
		return err
	}
	p.sayf("%s: %s %s, %.0f m², computed for %s by %s, took %s", job.ID, job.Process, r.Outcome, out.Area, r.Job, r.Owner,
		r.Elapsed.Round(time.Microsecond))
	return nil
}

// execute computes a job. It runs in one process at a time for the same inputs.
func (p *processor) execute(ctx context.Context, job Job) (Output, error) {
	p.sayf("%s: executing %s", job.ID, job.Process)
	if !retry.Sleep(ctx, p.slow) {
		return Output{}, context.Cause(ctx)
	}
	return p.kinds[job.Process].compute(ctx, job.Inputs)
}

// observe prints the events between processes.
func (p *processor) observe(_ context.Context, e flight.Event) {
	switch e.Kind {
	case flight.EventWaiting:
		p.sayf("%.20s...: waiting for %s", e.Key, e.Owner)
	case flight.EventTakeOver:
		p.sayf("%.20s...: taken over from %s, which is gone", e.Key, e.Owner)
	default:
	}
}

func (p *processor) sayf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}
