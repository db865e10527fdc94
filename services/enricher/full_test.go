package enricher

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// Where a store is full, a request is answered all the same: its place is pending. It is found when there is room.
func TestAPlaceIsPendingWhileAStoreIsFull(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"KV_" + contracts.BucketEnrich, "KV_" + contracts.BucketRequests, contracts.StreamEnrichJobs} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			nc, js := natstest.Connect(t, natstest.Server(t))
			e := begin(t, nc, config())
			full := check.Must(js.Stream(t.Context(), stream))(t)
			for _, room := range []bool{false, true} {
				config := full.CachedInfo().Config
				request := contracts.EnrichRequest{RequestID: "r", Results: []contracts.Restaurant{restaurant("A")}, WaitMS: 30_000}
				if !room {
					config.MaxBytes, request.WaitMS = 1, 0
				}
				check.OK(t, check.Err(js.UpdateStream(t.Context(), config)))
				answer, err := e.Enrich(t.Context(), request)
				unrecorded := !room && stream == "KV_"+contracts.BucketRequests
				check.That(t, err == nil && room == (answer.Pending == 0) && (answer.Skipped == contracts.SkippedStoreFull) == unrecorded,
					"room %t: %+v, %v", room, answer, err)
			}
		})
	}
}

// TestLongAnswers: the time that a client has to send its request does not end a stream of events, nor a request that
// waits.
func TestLongAnswers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, _ := natstest.Connect(t, srv)
		listener := servicetest.NewPipes()
		cfg := config()
		cfg.Listener = listener
		e, err := prepare(cfg)
		check.OK(t, err)
		spec := e.spec()
		spec.Open = e.answer // without a worker: the place stays pending
		e.running = check.Must(service.Start(t.Context(), nc, spec))(t)
		client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
		defer client.CloseIdleConnections()
		check.Same(t, "URL", e.URL(), "http://127.0.0.1:80")
		began := time.Now()
		answer, err := client.Post("http://localhost/v1/enrich?wait=55s", "application/json", strings.NewReader(`{"requestId":"r","results":[{"placeId":"a","name":"A"}]}`))
		check.OK(t, err)
		defer answer.Body.Close()
		took := time.Since(began)
		check.That(t, took >= 55*time.Second && took <= 56*time.Second, "answered after %s, want 55 s", took)
		resp, err := client.Get("http://localhost/v1/requests/r/events")
		check.OK(t, err)
		defer resp.Body.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, resp.Body)
			ended <- err
		}()
		elapse(10 * time.Minute)
		select {
		case err := <-ended:
			t.Errorf("the stream has ended: %v", err)
		default:
		}
		began = time.Now()
		check.Is(t, e.Stop(), nil)
		<-ended
		took = time.Since(began)
		check.That(t, took <= time.Second, "the stop took %s, want no wait for open streams", took)
	})
}

// elapse lets fake time pass.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only

// A request, its job and its entry are counted, and /metrics shows it under names that Prometheus accepts.
func TestMetrics(t *testing.T) {
	t.Parallel()
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "enricher", Version: "1.2.3"}))(t)
	cfg := config()
	cfg.Exports = exports
	nc, _ := natstest.Connect(t, natstest.Server(t))
	e := begin(t, nc, cfg)
	req := contracts.EnrichRequest{
		Results: []contracts.Restaurant{restaurant("A"), restaurant("Nowhere")}, WaitMS: int(contracts.MaxWait.Milliseconds()),
	}
	resp, err := e.Enrich(t.Context(), req)
	check.Require(t, err == nil && resp.Pending == 0, "got %+v, %v", resp, err)
	check.OK(t, check.Err(nc.Request("enricher.v1.get", []byte(`{"requestId":"nobody"}`), patience)))
	check.OK(t, e.Stop()) // a job and a request are counted after their answers are out
	answer := httptest.NewRecorder()
	exports.Metrics.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	text := answer.Body.String()
	for _, want := range []string{
		`enricher_requests_total 1`, `enricher_places_total 2`, `enricher_lookups_total{outcome="FOUND"} 1`,
		`enricher_lookups_total{outcome="NOT_FOUND"} 1`,
		`worker_job_attempts_total{consumer="enricher",outcome="completed",pattern="jobs.enrich.>",stream="ENRICH_JOBS"} 2`,
		`worker_job_wait_seconds_count{consumer="enricher",pattern="jobs.enrich.>",stream="ENRICH_JOBS"} 2`,
		`kvlock_events_total{bucket="enrich",kind="released"}`, `worker_ready{consumer="enricher",stream="ENRICH_JOBS"} `,
		`rpc_server_call_duration_seconds_count{rpc_method="enricher.v1.get",rpc_response_status_code="404",rpc_system_name="nats"} 1`,
		`far_side_call_duration_seconds_count{outcome="ok",side="wolt"} 2`,
		`messaging_client_sent_messages_total{messaging_destination_name="ENRICH_JOBS",messaging_operation_name="send",messaging_system="nats"} 2`,
	} {
		check.Says(t, text, want)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	check.That(t, err == nil && len(problems) == 0, "lint: %v, %v", problems, err)
}

// An enricher that was brought no exports has no page of metrics, and one that was serves it beside its own routes.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "enricher"}))(t)
	for _, x := range []*export.Exports{nil, exports} {
		cfg := config()
		cfg.Exports, cfg.Hosts = x, []string{"any.test"}
		nc, _ := natstest.Connect(t, natstest.Server(t))
		e := begin(t, nc, cfg)
		if status, _ := get(t, e.URL()+"/version"); status != http.StatusOK {
			t.Errorf("/version is %d", status)
		}
		ask(t, e.URL(), `{"results":[]}`, func(r *http.Request) { r.Host = "any.test:12345" })
		status, text := get(t, e.URL()+"/metrics")
		check.That(t, (status == http.StatusOK) == (x != nil) && (x == nil || strings.Contains(text, "go_goroutines")),
			"/metrics is %d with exports %t: %s", status, x != nil, text)
		if strings.Contains(text, "any.test") || strings.Contains(text, "server_port") || x != nil && !strings.Contains(text, "http_server_request_duration_seconds_count") {
			t.Errorf("requests are not counted, or by the host and port that a client writes: %s", text)
		}
	}
}

// ask posts a request that has to be answered.
func ask(t *testing.T, base, body string, mutate func(*http.Request)) {
	t.Helper()
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/enrich", strings.NewReader(body)))(t)
	mutate(r)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp := check.Must(client.Do(r))(t)
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
}

// The trace of a request over HTTP or NATS leads to the look-up that it caused, in any process.
func TestTraceReachesTheJob(t *testing.T) {
	spans := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.Is(t, err, nil)
		spans <- string(body)
		w.WriteHeader(http.StatusOK)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "enricher"}))(t)
	cfg := config()
	cfg.Exports, cfg.Logger = exports, slog.New(slog.DiscardHandler)
	nc, _ := natstest.Connect(t, natstest.Server(t))
	e := begin(t, nc, cfg)
	body := `{"waitMs":30000,"results":[{"placeId":"a","name":"A","address":"Harbour Road 1","cityText":"Haifa"}]}`
	ask(t, e.URL(), body, func(r *http.Request) {
		r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	})
	over := nats.NewMsg("enricher.v1.enrich") // NATS
	over.Header.Set("traceparent", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	over.Data = []byte(body)
	check.OK(t, check.Err(nc.RequestMsg(over, patience)))
	check.OK(t, e.Stop())
	check.OK(t, exports.Stop(t.Context()))
	close(spans)
	var all strings.Builder
	for s := range spans {
		all.WriteString(s)
	}
	caller := "\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c" // the trace of the request, in OTLP's bytes
	for _, want := range []string{"POST /v1/enrich", "process jobs.enrich.>", caller, "enricher.v1.enrich", "\x1a" + caller[1:]} {
		check.Says(t, all.String(), want)
	}
	n := strings.Count(all.String(), caller)
	check.That(t, n >= 2, "the trace of the caller is in %d places, want it in the request's span and in the job's link", n)
}

// A caller with a token of the issuer is known. An issuer that is down is no reason not to start.
func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	address, token := issuer(t)
	for issuer, want := range map[string]int{"http://127.0.0.1:1": http.StatusUnauthorized, address: http.StatusNotFound} {
		cfg := config()
		cfg.Listen, cfg.OIDCAudience, cfg.OIDCIssuer, cfg.OIDCScopeClaim = ":0", "enricher", issuer, "roles"
		r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, begin(t, nc, cfg).URL()+"/v1/requests/42:x", http.NoBody))(t)
		r.Header.Set("Authorization", "Bearer "+token)
		resp := check.Must((&http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(r))(t)
		resp.Body.Close()
		check.That(t, resp.StatusCode == want, "%s: %s %s", issuer, resp.Status, resp.Header.Get("WWW-Authenticate"))
	}
}

// issuer starts an identity provider, and returns its address and a token of the user 42 with the scope read.
func issuer(t *testing.T) (address, token string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	check.OK(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	answer := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	answer("/.well-known/openid-configuration", fmt.Sprintf(`{"issuer": %q, "jwks_uri": %q}`, server.URL, server.URL+"/keys"))
	answer("/keys", `{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": "`+encode(public)+`"}]}`)
	signed := encode([]byte(`{"alg": "EdDSA", "kid": "1"}`)) + "." + encode(fmt.Appendf(nil,
		`{"iss": %q, "aud": "enricher", "client_id": "app", "sub": "42", "roles": ["read"], "exp": %d}`, server.URL, time.Now().Add(time.Hour).Unix()))
	return server.URL, signed + "." + encode(ed25519.Sign(private, []byte(signed)))
}

// slow is a provider that answers when it is released.
type slow struct {
	named

	released chan struct{}
}

func (s slow) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	select {
	case <-s.released:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.named.Search(ctx, place)
}

// Each of the seven log events of a request is in the log at the level debug, and those of a normal hit or miss are not in
// the log otherwise.
func TestLogEvents(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]string{
		"":      "enqueue_skipped job_enqueued lock_acquired lock_failed",
		"debug": "cache_hit cache_miss enqueue_skipped job_enqueued lock_acquired lock_failed lock_skipped",
	} {
		t.Run("level "+level, func(t *testing.T) {
			t.Parallel()
			log := eventsLogged(t, level)
			var seen []string
			for _, event := range []string{
				"cache_hit", "cache_miss", "enqueue_skipped", "job_enqueued", "lock_acquired", "lock_failed", "lock_skipped",
			} {
				if strings.Contains(log, `"event":"wolt_`+event+`"`) {
					seen = append(seen, event)
				}
			}
			got := strings.Join(seen, " ")
			check.That(t, got == want, "the log has %s, want %s:\n%s", got, want, log)
		})
	}
}

// eventsLogged returns the log of an enricher in which every event happens.
func eventsLogged(t *testing.T, level string) string {
	t.Helper()
	log, far := &buffer{}, slow{named: "wolt", released: make(chan struct{})}
	cfg := config()
	check.OK(t, service.Read(name, map[string]string{"ENRICHER_LOG_LEVEL": level}, log, &cfg))
	cfg.Providers = []provider.Provider{far}
	nc, js := natstest.Connect(t, natstest.Server(t))
	e := begin(t, nc, cfg)
	ask := func(place string, waitMS int) {
		t.Helper()
		check.OK(t, check.Err(e.Enrich(t.Context(), contracts.EnrichRequest{Results: []contracts.Restaurant{restaurant(place)}, WaitMS: waitMS})))
	}
	ask("A", 0) // a miss: the place is claimed, its job is queued
	ask("A", 0) // the place is claimed already
	close(far.released)
	ask("A", 30_000)
	ask("A", 0) // a hit
	stream := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketEnrich))(t)
	sealed := stream.CachedInfo().Config
	sealed.Sealed = true
	check.OK(t, check.Err(js.UpdateStream(t.Context(), sealed)))
	ask("B", 0) // no place can be claimed
	check.Is(t, e.Stop(), nil)
	return log.String()
}
