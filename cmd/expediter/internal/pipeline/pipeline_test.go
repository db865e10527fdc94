package pipeline

import (
	"bytes"
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
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// mirror is a provider that finds every place under its own name, and counts.
type mirror struct{ calls atomic.Int64 }

func (*mirror) Name() string { return contracts.ProviderWolt }

func (m *mirror) Search(_ context.Context, place match.Place) ([]provider.Venue, error) {
	m.calls.Add(1)
	return []provider.Venue{{ID: "v-" + place.Name, Place: place, URL: "https://example.org/" + place.Name}}, nil
}

// begin starts a pipeline that the test stops.
func begin(t *testing.T, cfg Config) *Pipeline {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	p := check.Must(Start(t.Context(), cfg))(t)
	t.Cleanup(func() {
		check.ErrorIs(t, p.Stop(), nil)
	})
	return p
}

func request(names ...string) contracts.EnrichRequest {
	req := contracts.EnrichRequest{CityText: "Haifa", WaitMS: 20_000}
	for _, name := range names {
		req.Results = append(req.Results, contracts.Restaurant{PlaceID: "p-" + name, Name: name, Address: "Herzl 7"})
	}
	return req
}

// Start leaves nothing running or locked when something cannot start.
func TestStartCleansUpAfterAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer listener.Close()
	cfg := Config{
		Dir: dir, Enrichers: []string{"127.0.0.1:0", listener.Addr().String()}, Logger: slog.New(slog.DiscardHandler), Provider: &mirror{},
	}
	_, err = Start(t.Context(), cfg)
	check.Require(t, err != nil && strings.Contains(err.Error(), "enricher 2"), "got %v", err)
	cfg.Enrichers = nil
	begin(t, cfg) // the directory is free again
}

// A message that nats.go would write to the standard error is a line of the log.
func TestLogOfConnections(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := Pipeline{logger: slog.New(slog.NewTextHandler(&log, nil)), server: natstest.Server(t)}
	nc := check.Must(p.Connect())(t)
	nc.Close()
	nc.Opts.AsyncErrorCB(nc, nil, nats.ErrSlowConsumer)
	want := `level=ERROR msg=NATS error="` + nats.ErrSlowConsumer.Error() + `"`
	check.That(t, strings.Contains(log.String(), want), "it logs %q, want %q in it", &log, want)
}

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
		exports := check.Must(export.Start(t.Context(), export.Config{Service: name}))(t)
		t.Cleanup(func() { check.ErrorIs(t, exports.Stop(context.Background()), nil) }) //nolint:usetesting // that of the test is over
		exports.Meters = primed{exports.Meters}
		all = append(all, exports)
		return service.BaseConfig{CreateAssets: true, Exports: exports, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}
	}
	nc, js := natstest.Connect(t, srv)
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	e, err := enricher.Start(t.Context(), nc, enricher.Config{
		BaseConfig: base("enricher"), Enabled: true, Providers: []provider.Provider{&mirror{}},
	})
	check.OK(t, err)
	t.Cleanup(func() { check.ErrorIs(t, e.Stop(), nil) })
	i := check.Must(importer.Start(t.Context(), nc, importer.Config{BaseConfig: base("importer")}))(t)
	t.Cleanup(func() { check.ErrorIs(t, i.Stop(), nil) })
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	check.OK(t, os.WriteFile(rules, []byte(strings.ReplaceAll(string(Rules()), "[inapp]", "[inapp, pigeon]")), 0o600))
	n, err := notifier.Start(t.Context(), nc, notifier.Config{
		BaseConfig: base("notifier"), Channels: []notifier.Channel{{Channel: mute{}, Endpoints: true}}, Rules: rules,
	})
	check.OK(t, err)
	t.Cleanup(func() { check.ErrorIs(t, n.Stop(), nil) })
	user := contracts.Recipient{RecipientType: "ADMIN", UserID: "a", Addresses: map[string]string{"pigeon": "https://example.org/a"}}
	check.OK(t, n.Directory.Put(t.Context(), user))
	check.OK(t, check.Err(n.Publish(t.Context(), recipient.Event{
		EventID: "e1", EventType: "OUTAGE", AggregateType: "SITE", AggregateID: "1", OccurredAt: time.Now(), Payload: json.RawMessage(`{}`),
	})))
	for range 2 { // the second is skipped
		check.OK(t, check.Err(e.Enrich(t.Context(), request("Alma"))))
	}
	check.OK(t, check.Err(nc.Request("enricher.v1.get", []byte(`{}`), time.Minute)))
	conn := check.Must(net.Dial("tcp", strings.TrimPrefix(e.URL(), "http://")))(t)
	check.OK(t, check.Err(conn.Write([]byte("GET /v1/none HTTP/1.0\r\n\r\n"))))
	check.OK(t, check.Err(io.ReadAll(conn)))
	check.OK(t, conn.Close())
	kv := check.Must(js.KeyValue(t.Context(), contracts.BucketDeliveries))(t)
	check.Until(t, time.Minute, "a send has failed: its endpoint has a record", func() bool {
		keys, err := kv.ListKeysFiltered(t.Context(), "/endpoint.>")
		check.OK(t, err)
		defer keys.Stop() //nolint:errcheck // the connection ends
		return <-keys.Keys() != ""
	})
	var pages strings.Builder
	for _, exports := range all {
		pages.WriteString(page(t, exports.Metrics))
	}
	testbed.Metrics(t, pages.String(), func(name string) bool {
		return !strings.HasPrefix(name, "outbox_") && !strings.HasPrefix(name, "console_") && !strings.HasPrefix(name, "certificate_") // nothing here has TLS
	})
}

// page scrapes a service that has asked the server how many jobs wait.
func page(t *testing.T, metrics http.Handler) (text string) {
	t.Helper()
	check.Until(t, time.Minute, "the service shows its jobs", func() bool {
		answer := httptest.NewRecorder()
		metrics.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		text = answer.Body.String()
		return strings.Contains(text, "\nstream_jobs{") && strings.Contains(text, "\njetstream_storage_used_bytes ")
	})
	return text
}
