// Package meters makes metrics that are read when they are collected.
package meters

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// Meters has the instruments of a package, and the errors of making them.
type Meters struct {
	all   []metric.Observable
	err   error
	meter metric.Meter
}

// New returns no instruments yet.
func New(meter metric.Meter) *Meters { return &Meters{meter: meter} }

// Counter makes a counter.
func (m *Meters) Counter(name, unit, description string) metric.Int64Observable {
	c, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.made(c, err)
	return c
}

// Gauge makes a gauge of whole numbers.
func (m *Meters) Gauge(name, unit, description string) metric.Int64Observable {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.made(g, err)
	return g
}

// Float makes a gauge.
func (m *Meters) Float(name, unit, description string) metric.Float64Observable {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.made(g, err)
	return g
}

func (m *Meters) made(one metric.Observable, err error) {
	m.all, m.err = append(m.all, one), errors.Join(m.err, err)
}

// Observe calls read at each collection until stop is called. The error is also that of an instrument.
func (m *Meters) Observe(read metric.Callback) (stop func() error, err error) {
	err = m.err
	if err == nil {
		var registered metric.Registration
		if registered, err = m.meter.RegisterCallback(read, m.all...); err == nil {
			return registered.Unregister, nil
		}
	}
	return nil, fmt.Errorf("metrics: %w", err)
}
