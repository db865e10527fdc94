package notifier

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/pkg/natsotel/export"
)

// scope names this package to OpenTelemetry.
const scope = "github.com/expediter-io/expediter/services/notifier"

// exportRules exports the state of the rules, and the records that could not be read, as metrics until stop is called. Without
// exports stop is nil.
func (n *Notifier) exportRules(exports *export.Exports) (stop func() error, err error) {
	if exports == nil {
		return nil, nil //nolint:nilnil // documented
	}
	meter := exports.Meters.Meter(scope)
	info, infoErr := meter.Int64ObservableGauge("notifier.rules.info",
		metric.WithDescription("1, with the version of the rules that are in force"))
	loaded, loadedErr := meter.Int64ObservableGauge("notifier.rules.loaded",
		metric.WithUnit("s"), metric.WithDescription("When the rules that are in force were read, in Unix time"))
	failed, failedErr := meter.Int64ObservableGauge("notifier.rules.failed",
		metric.WithDescription("1 when what the files of rules and templates hold now has mistakes, and is not in force"))
	illegible, illegibleErr := meter.Int64ObservableCounter("notifier.records.unreadable",
		metric.WithDescription("Records that could not be read when they were listed"))
	if err := errors.Join(infoErr, loadedErr, failedErr, illegibleErr); err != nil {
		return nil, fmt.Errorf("notifier: metrics: %w", err)
	}
	registered, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		stats := n.rules.Stats()
		o.ObserveInt64(info, 1, metric.WithAttributes(attribute.String("version", stats.Version)))
		o.ObserveInt64(loaded, stats.LoadedAt.Unix())
		mistakes := int64(0)
		if stats.Failed != "" {
			mistakes = 1
		}
		o.ObserveInt64(failed, mistakes)
		o.ObserveInt64(illegible, n.illegible.Load())
		return nil
	}, info, loaded, failed, illegible)
	if err != nil {
		return nil, fmt.Errorf("notifier: metrics: %w", err)
	}
	return registered.Unregister, nil
}
