package export_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page returns the page of metrics.
func page(t testing.TB, h http.Handler) string {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	check.Require(t, answer.Code == http.StatusOK, "status %d: %s", answer.Code, answer.Body)
	return answer.Body.String()
}

// Counters are on the page under names that Prometheus asks for, beside the metrics of the process and the service.
func TestMetrics(t *testing.T) {
	t.Parallel()
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "kitchen", Version: "1.2.3"}))(t)
	meter := exports.Meters.Meter("test")
	orders := check.Must(meter.Int64Counter("kitchen.orders", metric.WithUnit("{order}"), metric.WithDescription("Orders.")))(t)
	wait := check.Must(meter.Float64Histogram("kitchen.wait", metric.WithUnit("s"), metric.WithDescription("Waits.")))(t)
	orders.Add(t.Context(), 3)
	wait.Record(t.Context(), 1)
	text := page(t, exports.Metrics)
	check.Contains(t, text,
		"kitchen_orders_total 3", "kitchen_wait_seconds_count 1", `service_name="kitchen"`, `service_version="1.2.3"`,
	)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	check.That(t, err == nil && len(problems) == 0, "lint: %v, %v", problems, err)
	check.ErrorIs(t, exports.Stop(t.Context()), nil)
}

// Spans reach the collector that the environment names, at the latest when the program stops.
func TestTraces(t *testing.T) {
	received := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.ErrorIs(t, err, nil)
		received <- r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
		w.WriteHeader(http.StatusOK)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "kitchen"}))(t)
	_, span := exports.Tracers.Tracer("test").Start(t.Context(), "cook soup")
	span.End()
	check.OK(t, exports.Stop(t.Context()))
	if got := <-received; !strings.HasPrefix(got, "/v1/traces Bearer x ") || !strings.Contains(got, "cook soup") || !strings.Contains(got, "kitchen") {
		t.Errorf("the collector got %q", got)
	}
}

// Every mistake in the environment is named, without the secrets in it.
func TestMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty")
	check.OK(t, os.WriteFile(file, nil, 0o600))
	for key, value := range map[string]string{
		"CERTIFICATE": file, "CLIENT_CERTIFICATE": file, "COMPRESSION": "zstd", "ENDPOINT": "collector:4318", "HEADERS": "Bearer secret",
		"PROTOCOL": "grpc", "TIMEOUT": "10s",
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+key, value)
	}
	_, err := export.Start(t.Context(), export.Config{Service: "kitchen"})
	for _, want := range []string{
		"CERTIFICATE: " + file + " has no certificate", "CLIENT_CERTIFICATE: with OTEL_EXPORTER_OTLP_CLIENT_KEY", `COMPRESSION: "zstd" is neither`,
		`ENDPOINT: "collector:4318" is not a URL`, "HEADERS: header 1 of the list is not", `PROTOCOL: "grpc" is neither`, `TIMEOUT: "10s" is not`,
	} {
		check.That(t, err != nil && strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_"+want) && !strings.Contains(err.Error(), "secret"),
			"no %s in %v", want, err)
	}
}

// Without a collector nothing is recorded, and nothing has to be stopped.
func TestNoCollector(t *testing.T) {
	for _, disabled := range []string{"", "TRUE"} {
		t.Setenv("OTEL_SDK_DISABLED", disabled)
		if disabled != "" {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		}
		exports := check.Must(export.Start(t.Context(), export.Config{Service: "kitchen"}))(t)
		_, span := exports.Tracers.Tracer("test").Start(t.Context(), "cook")
		check.That(t, !span.IsRecording(), "a span is recorded with OTEL_SDK_DISABLED=%q", disabled)
		check.ErrorIs(t, exports.Stop(t.Context()), nil)
	}
}
