package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/documented"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// primed makes instruments that have counted zero, or one, once: a page shows those alone that have counted.
type primed struct{ metric.MeterProvider }

func (p primed) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return primedMeter{p.MeterProvider.Meter(name, opts...)}
}

type primedMeter struct{ metric.Meter }

func (m primedMeter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c, err := m.Meter.Int64Counter(name, opts...)
	c.Add(context.Background(), 0)
	return c, err
}

func (m primedMeter) Int64UpDownCounter(name string, opts ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	c, err := m.Meter.Int64UpDownCounter(name, opts...)
	c.Add(context.Background(), 0)
	return c, err
}

func (m primedMeter) Int64Histogram(name string, opts ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	h, err := m.Meter.Int64Histogram(name, opts...)
	h.Record(context.Background(), 1)
	return h, err
}

func (m primedMeter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	h, err := m.Meter.Float64Histogram(name, opts...)
	h.Record(context.Background(), 1)
	return h, err
}

// mute is a channel to endpoints that do not answer.
type mute struct{}

func (mute) Name() string { return "pigeon" }

func (mute) Send(context.Context, channel.Message) (channel.Receipt, error) {
	return channel.Receipt{}, errors.New("no answer")
}

// A metric that a service shows and docs/metrics.md does not have, and one that no service shows, fail.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "server.conf")
	check.OK(t, os.WriteFile(config, []byte("jetstream {}\naccounts { A { jetstream { max_file: 20GB }, users: [ { user: u } ] } }\nno_auth_user: u\n"), 0o600))
	srv := natstest.Server(t, func(c *natsrun.Config) { c.ConfigFile = config })
	var all []*export.Exports
	base := func(name string) service.BaseConfig {
		exports, err := export.Start(t.Context(), export.Config{Service: name})
		check.OK(t, err)
		t.Cleanup(func() { check.Is(t, exports.Stop(context.Background()), nil) }) //nolint:usetesting // that of the test is over
		exports.Meters = primed{exports.Meters}
		all = append(all, exports)
		return service.BaseConfig{CreateAssets: true, Exports: exports, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}
	}
	nc, js := natstest.Connect(t, srv)
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})))
	e, err := enricher.Start(t.Context(), nc, enricher.Config{
		BaseConfig: base("enricher"), Enabled: true, Providers: []provider.Provider{&mirror{}},
	})
	check.OK(t, err)
	t.Cleanup(func() { check.Is(t, e.Stop(), nil) })
	i, err := importer.Start(t.Context(), nc, importer.Config{BaseConfig: base("importer")})
	check.OK(t, err)
	t.Cleanup(func() { check.Is(t, i.Stop(), nil) })
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	check.OK(t, os.WriteFile(rules, []byte(strings.ReplaceAll(string(sample.Rules()), "[inapp]", "[inapp, pigeon]")), 0o600))
	n, err := notifier.Start(t.Context(), nc, notifier.Config{
		BaseConfig: base("notifier"), Channels: []notifier.Channel{{Channel: mute{}, Endpoints: true}}, Rules: rules,
	})
	check.OK(t, err)
	t.Cleanup(func() { check.Is(t, n.Stop(), nil) })
	user := contracts.Recipient{RecipientType: "ADMIN", UserID: "a", Addresses: map[string]string{"pigeon": "https://example.org/a"}}
	check.OK(t, n.Directory.Put(t.Context(), user))
	check.OK(t, check.Err(n.Publish(t.Context(), contracts.Event{
		EventID: "e1", EventType: "OUTAGE", AggregateType: "SITE", AggregateID: "1", OccurredAt: time.Now(), Payload: json.RawMessage(`{}`),
	})))
	for range 2 { // the second is skipped
		check.OK(t, check.Err(e.Enrich(t.Context(), request("Alma"))))
	}
	check.OK(t, check.Err(nc.Request("enricher.v1.get", []byte(`{}`), time.Minute)))
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.URL(), "http://"))
	check.OK(t, err)
	check.OK(t, check.Err(conn.Write([]byte("GET /v1/none HTTP/1.0\r\n\r\n"))))
	check.OK(t, check.Err(io.ReadAll(conn)))
	check.OK(t, conn.Close())
	await(t, js, "deliveries")
	var pages strings.Builder
	for _, exports := range all {
		pages.WriteString(page(t, exports.Metrics))
	}
	documented.Metrics(t, pages.String(), func(name string) bool { return !strings.HasPrefix(name, "outbox_") })
}

// page scrapes a service that has asked the server how many jobs wait.
func page(t *testing.T, metrics http.Handler) string {
	t.Helper()
	for {
		answer := httptest.NewRecorder()
		metrics.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if text := answer.Body.String(); strings.Contains(text, "\nstream_jobs{") && strings.Contains(text, "\njetstream_storage_used_bytes ") {
			return text
		}
		check.Require(t, pause.For(t.Context(), 10*time.Millisecond), "the service shows no jobs")
	}
}

// await waits until a row was sent in vain: its endpoint has a record.
func await(t *testing.T, js jetstream.JetStream, bucket string) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), bucket)
	check.OK(t, err)
	w, err := kv.Watch(t.Context(), "/endpoint.>")
	check.OK(t, err)
	defer w.Stop() //nolint:errcheck // the connection ends
	for entry := range w.Updates() {
		if entry != nil {
			return
		}
	}
}
