package enricher

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
)

// exportStats exports the counts of Stats as metrics. Without exports it does nothing.
func (e *Enricher) exportStats(exports *export.Exports) error {
	if exports == nil {
		return nil
	}
	meter := exports.Meters.Meter("github.com/expediter-io/expediter/services/enricher")
	counter := func(name, unit, description string, observe func(metric.Int64Observer, Stats)) error {
		_, err := meter.Int64ObservableCounter("enricher."+name, metric.WithUnit(unit), metric.WithDescription(description),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				observe(o, e.Stats())
				return nil
			}))
		return err //nolint:wrapcheck // below
	}
	var failed error
	for _, c := range []struct {
		name, unit, description string
		observe                 func(metric.Int64Observer, Stats)
	}{
		{"requests", "{request}", "Requests answered.", func(o metric.Int64Observer, s Stats) { o.Observe(s.Requests) }},
		{"places", "{place}", "Places asked for, each provider counted.", func(o metric.Int64Observer, s Stats) { o.Observe(s.Places) }},
		{"hits", "{place}", "Places answered from a known result.", func(o metric.Int64Observer, s Stats) { o.Observe(s.Hits) }},
		{"jobs", "{job}", "Jobs queued.", func(o metric.Int64Observer, s Stats) { o.Observe(s.Jobs) }},
		{"provider.calls", "{call}", "Searches made by jobs.", func(o metric.Int64Observer, s Stats) { o.Observe(s.ProviderCalls) }},
		{"patches", "{patch}", "Patches handed to subscribers.", func(o metric.Int64Observer, s Stats) { o.Observe(s.Patches) }},
		{"lookups", "{lookup}", "Look-ups that ended, by outcome.", observeOutcomes},
		{"skips", "{place}", "Places that were not looked up, by reason.", observeSkips},
	} {
		if err := counter(c.name, c.unit, c.description, c.observe); err != nil && failed == nil {
			failed = fmt.Errorf("enricher: telemetry: %w", err)
		}
	}
	return failed
}

func observeOutcomes(o metric.Int64Observer, s Stats) {
	for outcome, n := range map[contracts.Outcome]int64{
		contracts.OutcomeFound: s.Found, contracts.OutcomeNotFound: s.NotFound, contracts.OutcomeAmbiguous: s.Ambiguous,
		contracts.OutcomeError: s.Errors,
	} {
		o.Observe(n, metric.WithAttributes(attribute.String("outcome", string(outcome))))
	}
}

func observeSkips(o metric.Int64Observer, s Stats) {
	for reason, n := range s.Skipped {
		o.Observe(n, metric.WithAttributes(attribute.String("reason", string(reason))))
	}
}
