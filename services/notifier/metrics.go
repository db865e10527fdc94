package notifier

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/internal/meters"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
)

// scope names this package to OpenTelemetry.
const scope = "github.com/expediter-io/expediter/services/notifier"

// observe exports the notifier's counts as metrics until stop is called. Without exports, stop is nil.
func (n *Notifier) observe(exports *export.Exports) (stop func() error, err error) {
	if exports == nil {
		return nil, nil
	}
	m := meters.New(exports.Meters.Meter(scope))
	info := m.Gauge("notifier.rules.info", "", "1, with the version of the rules that are in force.")
	loaded := m.Gauge("notifier.rules.loaded", "s", "When the rules that are in force were read, in Unix time.")
	failed := m.Gauge("notifier.rules.failed", "", "1 when what the files of rules and templates hold now has mistakes, and is not in force.")
	illegible := m.Counter("notifier.records.unreadable", "", "Records that could not be read when they were listed.")
	events := m.Counter("notifier.events", "{event}", "Events that were worked, by outcome.")
	rows := m.Counter("notifier.notifications", "{notification}", "Notifications that came into a state, by channel and reason.")
	endpoints := m.Gauge("notifier.endpoints", "{endpoint}", "Endpoints of users that fail, or are disabled, by channel.")
	return m.Observe(func(_ context.Context, o metric.Observer) error {
		stats := n.Stats()
		o.ObserveInt64(info, 1, metric.WithAttributes(attribute.String("version", stats.Rules.Version)))
		o.ObserveInt64(loaded, stats.Rules.LoadedAt.Unix())
		mistakes := int64(0)
		if stats.Rules.Failed != "" {
			mistakes = 1
		}
		o.ObserveInt64(failed, mistakes)
		o.ObserveInt64(illegible, n.illegible.Load())
		for outcome, times := range map[string]int64{
			"duplicate": stats.Duplicates, "ignored": stats.Ignored, "planned": stats.Planned, "refused": stats.Refused,
		} {
			o.ObserveInt64(events, times, metric.WithAttributes(attribute.String("outcome", outcome)))
		}
		for _, s := range n.senders {
			for came, times := range s.Came() {
				o.ObserveInt64(rows, times, metric.WithAttributes(attribute.String("channel", s.Channel()),
					attribute.String("state", string(came.State)), attribute.String("reason", came.Reason)))
			}
		}
		n.health.Counts(func(channel string, state health.State, count int) {
			o.ObserveInt64(endpoints, int64(count), metric.WithAttributes(
				attribute.String("channel", channel), attribute.String("state", string(state))))
		})
		return nil
	})
}
