package otlp

import (
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sent is the body that otlptracehttp v1.47.0 sent for cooked.
//
//go:embed testdata/sent.hex
var sent string

// cooked is a span that has everything.
func cooked() []sdktrace.ReadOnlySpan {
	at := time.Unix(1_700_000_000, 123)
	of := trace.SpanContextConfig{TraceID: trace.TraceID{1, 2}, SpanID: trace.SpanID{3}, TraceFlags: trace.FlagsSampled}
	above := of
	above.SpanID, above.Remote = trace.SpanID{4}, true
	return tracetest.SpanStubs{{
		Name: "cook soup", SpanContext: trace.NewSpanContext(of), Parent: trace.NewSpanContext(above), SpanKind: trace.SpanKindServer,
		StartTime: at, EndTime: at.Add(time.Second),
		Attributes: []attribute.KeyValue{attribute.Bool("hot", true), attribute.Float64Slice("salt", []float64{0.5})},
		Events:     []sdktrace.Event{{Name: "boils", Time: at, Attributes: []attribute.KeyValue{attribute.Int("c", 100)}, DroppedAttributeCount: 1}},
		Links:      []sdktrace.Link{{SpanContext: trace.NewSpanContext(above), Attributes: []attribute.KeyValue{attribute.String("why", "stock")}}},
		Status:     sdktrace.Status{Code: codes.Error, Description: "burnt"}, DroppedAttributes: 1, DroppedEvents: 2, DroppedLinks: 3,
		Resource:             resource.NewWithAttributes("https://example.org/schema", attribute.String("service.name", "kitchen")),
		InstrumentationScope: instrumentation.Scope{Name: "test", Version: "1", SchemaURL: "https://example.org/scope"},
	}}.Snapshots()
}

// export sends cooked as the environment says.
func export(t *testing.T) error {
	t.Helper()
	c := check.Must(New())(t)
	exporter := check.Must(otlptrace.New(t.Context(), c))(t)
	defer exporter.Shutdown(t.Context()) //nolint:errcheck // returns none
	return exporter.ExportSpans(t.Context(), cooked())
}

// The request is that of otlptracehttp.
func TestRequest(t *testing.T) {
	for _, compression := range []string{"", "none", "gzip"} {
		t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, kitchen = north ")
		got := make(chan *http.Request, 1)
		collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body := r.Body
			if r.Header.Get("Content-Encoding") == "gzip" {
				unzipped, err := gzip.NewReader(body)
				if err != nil {
					t.Error(err)
					return
				}
				body = unzipped
			}
			data, err := io.ReadAll(body)
			check.That(t, err == nil && hex.EncodeToString(data) == strings.TrimSpace(sent), "sent %x, %v\nwant %s", data, err, sent)
			got <- r
		}))
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL+"/in")
		check.OK(t, export(t))
		r := <-got
		for name, want := range map[string]string{
			"Authorization": "Bearer x", "Content-Encoding": strings.TrimPrefix(compression, "none"), "Content-Type": "application/x-protobuf",
			"Kitchen": "north", "User-Agent": "OTel OTLP Exporter Go/" + otlptrace.Version(),
		} {
			check.Same(t, name, r.Header.Get(name), want)
		}
		check.That(t, r.Method == http.MethodPost && r.URL.Path == "/in/v1/traces", "%s %s", r.Method, r.URL)
		collector.Close()
	}
}

// The variables of traces go before those of all signals, and the path is theirs. The collector and the client know each other
// by certificates.
func TestCertificates(t *testing.T) {
	paths := make(chan string, 1)
	collector := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths <- r.URL.Path }))
	collector.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	collector.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // of the first attempt
	collector.StartTLS()
	defer collector.Close()
	key := check.Must(x509.MarshalPKCS8PrivateKey(collector.TLS.Certificates[0].PrivateKey))(t)
	dir := t.TempDir()
	for name, block := range map[string]pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: collector.Certificate().Raw}, "key.pem": {Type: "PRIVATE KEY", Bytes: key},
	} {
		check.OK(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600))
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.URL+"/mine")
	check.Failsf(t, export(t), "a collector that nobody vouches for was trusted")
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", filepath.Join(dir, "cert.pem"))
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", filepath.Join(dir, "cert.pem"))
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", filepath.Join(dir, "key.pem"))
	check.OK(t, export(t))
	check.Same(t, "the path", <-paths, "/mine")
}

// Every mistake of the environment is named, without the secrets in it.
func TestMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty")
	check.OK(t, os.WriteFile(file, nil, 0o600))
	for key, value := range map[string]string{
		"CERTIFICATE": file, "CLIENT_CERTIFICATE": file, "COMPRESSION": "zstd", "ENDPOINT": "collector:4318", "HEADERS": "Bearer secret",
		"PROTOCOL": "grpc", "TIMEOUT": "10s",
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+key, value)
	}
	_, err := New()
	for _, want := range []string{
		"CERTIFICATE: " + file + " has no certificate", "CLIENT_CERTIFICATE: with OTEL_EXPORTER_OTLP_CLIENT_KEY", `COMPRESSION: "zstd" is neither`,
		`ENDPOINT: "collector:4318" is not a URL`, "HEADERS: header 1 of the list is not", `PROTOCOL: "grpc"`, `TIMEOUT: "10s" is not`,
	} {
		check.That(t, err != nil && strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_"+want) && !strings.Contains(err.Error(), "secret"),
			"no %s in %v", want, err)
	}
}

// answers is a collector within the process.
type answers func(*http.Request) *http.Response

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if answer := a(r); answer != nil {
		return answer, nil
	}
	return nil, errors.New("refused")
}

func answer(status int, body string, header ...string) *http.Response {
	w := httptest.NewRecorder()
	for i := 0; i < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.WriteHeader(status)
	w.WriteString(body) //nolint:errcheck // never fails
	return w.Result()
}

// upload sends one batch to collect, and returns the times of the attempts.
func upload(t *testing.T, collect func(attempt int) *http.Response) (attempts []time.Duration, err error) {
	t.Helper()
	c, err := New()
	check.OK(t, errors.Join(err, c.Start(t.Context())))
	begin := time.Now()
	c.http.Transport = answers(func(*http.Request) *http.Response {
		attempts = append(attempts, time.Since(begin))
		return collect(len(attempts))
	})
	err = c.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{SchemaUrl: "https://example.org"}})
	return attempts, errors.Join(err, c.Stop(t.Context()))
}

// A batch is sent again while the collector is busy, after the wait that it asks for, and not for longer than a minute.
func TestRetries(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector")
	for _, test := range []struct {
		name     string
		collect  func(attempt int) *http.Response
		attempts func(at []time.Duration) bool
		err      string
	}{
		{"taken after a while", func(attempt int) *http.Response {
			if attempt < 3 {
				return answer(http.StatusServiceUnavailable, "", "Retry-After", "20")
			}
			return answer(http.StatusOK, "")
		}, func(at []time.Duration) bool {
			return len(at) == 3 && at[1] == 20*time.Second && at[2] == 40*time.Second
		}, ""},
		{
			"busy for ever", func(int) *http.Response { return answer(http.StatusTooManyRequests, "full\n") },
			func(at []time.Duration) bool {
				return len(at) > 3 && at[1] >= firstRetry/2 && at[len(at)-1] <= retryFor
			}, "429 Too Many Requests: full",
		},
		{
			"busy for an hour", func(int) *http.Response { return answer(http.StatusBadGateway, "", "Retry-After", "3600") },
			func(at []time.Duration) bool { return len(at) == 1 }, "502 Bad Gateway: ",
		},
		{
			"refused", func(int) *http.Response { return answer(http.StatusBadRequest, strings.Repeat("x", maxAnswer+1)) },
			func(at []time.Duration) bool { return len(at) == 1 }, "400 Bad Request: " + strings.Repeat("x", maxAnswer),
		},
		{"not reached", func(int) *http.Response { return nil }, func(at []time.Duration) bool { return len(at) == 1 }, "refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at, err := upload(t, test.collect)
				if got := fmt.Sprint(err); !test.attempts(at) || (err == nil) != (test.err == "") || err != nil && !strings.HasSuffix(got, test.err) {
					t.Errorf("attempts at %v, error %.200s", at, got)
				}
			})
		})
	}
}

// Stop ends the wait for the next attempt.
func TestStop(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector")
	synctest.Test(t, func(t *testing.T) {
		c, err := New()
		check.OK(t, errors.Join(err, c.Start(t.Context())))
		c.http.Transport = answers(func(*http.Request) *http.Response { return answer(http.StatusGatewayTimeout, "") })
		sent := make(chan error, 1)
		go func() { sent <- c.UploadTraces(t.Context(), nil) }()
		synctest.Wait()
		begin := time.Now()
		err = errors.Join(c.Stop(t.Context()), <-sent)
		check.That(t, err != nil && time.Since(begin) <= 0, "stopped after %v: %v", time.Since(begin), err)
	})
}

// A collector that takes a batch but refuses some of its spans is an error.
func TestRejected(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector")
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 2)
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), "too many")
	whole := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
	for n := range whole { // part of an answer is no answer, and no fault
		if err := rejected(whole[:n]); err != nil {
			t.Errorf("%x: %v", whole[:n], err)
		}
	}
	for kind, want := range map[string]string{protobuf: "the collector refused 2 spans: too many", "text/plain": "<nil>"} {
		at, err := upload(t, func(int) *http.Response { return answer(http.StatusOK, string(whole), "Content-Type", kind) })
		if got := fmt.Sprint(err); len(at) != 1 || got != want {
			t.Errorf("%s: %q after %d attempts, want %q", kind, got, len(at), want)
		}
	}
}
