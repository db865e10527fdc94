package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/peterstace/simplefeatures/carto"
	"github.com/peterstace/simplefeatures/geom"

	"github.com/expediter-io/expediter/pkg/worker"
)

// Inputs are the inputs of a process.
type Inputs struct {
	Distance   float64         `json:"distance,omitempty"` // of a buffer, in metres
	Geometries []geom.Geometry `json:"geometries"`         // GeoJSON: longitudes and latitudes, WGS 84
}

// Output is its result.
type Output struct {
	Area     float64       `json:"area"` // m²
	Geometry geom.Geometry `json:"geometry"`
}

// process is one kind of operation, with the TTL of its results.
type process struct {
	name string
	keep time.Duration
	run  func(Inputs) (geom.Geometry, error) // in metres
}

const day = 24 * time.Hour

func processes() []process {
	return []process{
		{"buffer", 7 * day, buffer},
		{"intersection", 14 * day, intersection},
		{"union", 12 * time.Hour, union}, // of geometries that change every day
	}
}

var errInputs = errors.New("inputs do not fit the process")

func buffer(in Inputs) (geom.Geometry, error) {
	if len(in.Geometries) != 1 || in.Distance <= 0 {
		return geom.Geometry{}, fmt.Errorf("%w: a buffer is of one geometry, by a positive distance", errInputs)
	}
	return geom.Buffer(in.Geometries[0], in.Distance)
}

func intersection(in Inputs) (geom.Geometry, error) {
	if len(in.Geometries) != 2 {
		return geom.Geometry{}, fmt.Errorf("%w: an intersection is of two geometries", errInputs)
	}
	return geom.Intersection(in.Geometries[0], in.Geometries[1])
}

func union(in Inputs) (geom.Geometry, error) {
	if len(in.Geometries) == 0 {
		return geom.Geometry{}, fmt.Errorf("%w: a union is of at least one geometry", errInputs)
	}
	return geom.UnionMany(in.Geometries)
}

// compute runs the process in the plane, in the UTM zone of the first geometry, because degrees are not lengths. An input that cannot be
// computed today cannot be computed tomorrow: its errors are final.
func (p process) compute(_ context.Context, in Inputs) (Output, error) {
	zone, err := zoneOf(in.Geometries)
	if err != nil {
		return Output{}, worker.Discard(err)
	}
	plane := Inputs{Distance: in.Distance, Geometries: make([]geom.Geometry, len(in.Geometries))}
	for i, g := range in.Geometries {
		plane.Geometries[i] = g.TransformXY(zone.Forward)
	}
	g, err := p.run(plane)
	if err != nil {
		return Output{}, worker.Discard(fmt.Errorf("%s: %w", p.name, err))
	}
	return Output{Area: g.Area(), Geometry: g.TransformXY(zone.Reverse)}, nil
}

func zoneOf(geometries []geom.Geometry) (*carto.UTM, error) {
	if len(geometries) == 0 {
		return nil, fmt.Errorf("%w: no geometries", errInputs)
	}
	at, ok := geometries[0].Envelope().Center().XY()
	if !ok {
		return nil, fmt.Errorf("%w: the first geometry is empty", errInputs)
	}
	zone, err := carto.NewUTMFromLocation(at)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInputs, err)
	}
	return zone, nil
}
