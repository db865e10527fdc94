package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/peterstace/simplefeatures/geom"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

//go:embed sample.geojson
var sample []byte

// sampleJobs returns a buffer, an intersection and a union of the features in the sample. Each run has its own IDs, and the same
// inputs.
func sampleJobs(run string) ([]Job, error) {
	var features geom.GeoJSONFeatureCollection
	if err := json.Unmarshal(sample, &features); err != nil {
		return nil, fmt.Errorf("sample.geojson: %w", err)
	}
	park, plain, path := features.Features[0].Geometry, features.Features[1].Geometry, features.Features[2].Geometry
	return []Job{
		{ID: run + "-path", Process: "buffer", Inputs: Inputs{Distance: 25, Geometries: []geom.Geometry{path}}},
		{ID: run + "-wet", Process: "intersection", Inputs: Inputs{Geometries: []geom.Geometry{park, plain}}},
		{ID: run + "-all", Process: "union", Inputs: Inputs{Geometries: []geom.Geometry{park, plain}}},
	}, nil
}

// enqueue publishes a job. The same job twice is one message.
func enqueue(ctx context.Context, js jetstream.JetStream, job Job) error {
	data, err := json.Marshal(job)
	if err != nil {
		return fmt.Errorf("encode %s: %w", job.ID, err)
	}
	if _, err := js.Publish(ctx, "geo.jobs."+job.Process, data, jetstream.WithMsgID(job.ID)); err != nil {
		return fmt.Errorf("publish %s: %w", job.ID, err)
	}
	return nil
}

// result waits until there is a result for the job. Any worker may compute it, and any number of workers may die in
// between.
func (p *processor) result(ctx context.Context, job Job) (Output, flight.Entry, error) {
	cache := p.caches[job.Process]
	key, err := cache.Key(job)
	if err != nil {
		return Output{}, flight.Entry{}, err
	}
	w, err := p.flight.Watch(key)
	if err != nil {
		return Output{}, flight.Entry{}, err
	}
	defer w.Close()
	for {
		switch entry, err := w.Next(ctx); {
		case err != nil:
			return Output{}, entry, err
		case entry.State == flight.Failed:
			return Output{}, entry, &flight.FailedError{Key: key, Reason: entry.Reason, Owner: entry.Owner}
		case entry.State == flight.Done:
			return cache.Get(ctx, job)
		}
	}
}
