package measure_test

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/cmd/expediter/internal/measure"
	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every part is measured, and nothing is left of it, also when the measurement fails in the middle.
func TestMeasurementLeavesNothing(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	venues, err := catalog.Read(sample.Catalog(), catalog.Config{Name: contracts.ProviderWolt})
	check.OK(t, err)
	cfg := measure.Config{
		Callers: 4, Connect: func(opts ...nats.Option) (*nats.Conn, error) { return s.Connect(opts...) }, Lasts: time.Nanosecond,
		Logger: slog.New(slog.DiscardHandler), Parts: measure.Parts(), Provider: venues, Replicas: 1,
	}
	measured := map[string]int{}
	cfg.Each = func(r measure.Row) error {
		check.That(t, r.Count >= r.Callers && r.PerSecond > 0 && r.P50 > 0 && r.P50 <= r.P99, "%+v", r)
		measured[r.Part]++
		return nil
	}
	check.OK(t, measure.Run(t.Context(), cfg))
	for _, part := range measure.Parts() {
		check.That(t, measured[part] > 0, "%s was not measured", part)
	}
	_, js := natstest.Connect(t, s)
	streams := func() (names []string) {
		for name := range js.StreamNames(t.Context()).Name() {
			names = append(names, name)
		}
		return names
	}
	check.That(t, streams() == nil, "the measurement left %s", streams())

	stop := errors.New("the reader is gone")
	cfg.Each = func(measure.Row) error { return stop }
	check.Is(t, measure.Run(t.Context(), cfg), stop)
	check.That(t, streams() == nil, "the failure left %s", streams())

	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "AUDIT", Subjects: []string{"mine"}})
	check.OK(t, err)
	check.Is(t, measure.Run(t.Context(), cfg), measure.ErrInUse)
	check.That(t, slices.Equal(streams(), []string{"AUDIT"}), "of others' streams %s are left", streams())
}
